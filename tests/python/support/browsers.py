"""Chromium without a window, for the tests of pages and for pictures of them."""

import base64
import shutil
import tempfile

import pytest
from waits import eventually

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


class Browser:
    """One Chromium with a profile of its own.

    Args:
        size: width and height of the window; a narrow one is a phone.
        scheme: "light" or "dark".
    """

    def __init__(self, size=(1280, 1000), scheme="light"):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        width, height = size
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        for argument in (
            *("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"),
            f"window-size={width},{height}",
            f"user-data-dir={self._profile}",
        ):
            options.add_argument(f"--{argument}")
        if width < 600:
            metrics = {"width": width, "height": height, "pixelRatio": 2, "touch": True}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def close(self):
        self.driver.quit()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, url):
        self.driver.get(url)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector):
        """The texts of all elements, as they are shown."""
        find = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText.trim())"
        return self.run(find, selector)

    def wait_for(self, selector, text):
        """Wait until an element shows a text."""
        eventually(lambda: any(text in each for each in self.texts(selector)))

    def errors(self):
        """What the console has of scripts and of the security policy."""
        log = self.driver.get_log("browser")
        return [each for each in log if each["source"] != "network" and each["level"] != "INFO"]

    def picture(self, file):
        """Save a PNG of the whole page."""
        size = "const e = document.documentElement; return [e.scrollWidth, e.scrollHeight]"
        width, height = self.run(size)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        options = {"captureBeyondViewport": True, "clip": clip}
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        file.write_bytes(base64.b64decode(taken["data"]))


@pytest.fixture(scope="session")
def chromiums():
    """The browsers of all tests, by their arguments. They stay: each takes seconds to start."""
    started = {}
    yield started
    for each in started.values():
        each.close()


@pytest.fixture
def browsers(chromiums, web_servers):
    """Gives browsers, whose pages are left before the servers end, which would wait for them."""
    pytest.importorskip("selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium and chromium-driver")

    def browser(size=(1280, 1000), scheme="light"):
        if (size, scheme) not in chromiums:
            chromiums[size, scheme] = Browser(size, scheme)
        chromiums[size, scheme].errors()  # of tests before this one
        return chromiums[size, scheme]

    yield browser
    for each in chromiums.values():
        each.open("about:blank")
