"""The clients that others have written, each at its defaults. One that is not here is skipped."""

import re
import shutil
import subprocess

import pytest

pytest.importorskip("http_servers")

PREDICT = "/v1/models/double:predict"

JAVA = """
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] urls) throws Exception {
        var client = HttpClient.newHttpClient();  // asks for h2c with each request
        for (int number = 0; number < 3; number++) {
            var body = HttpRequest.BodyPublishers.ofString("{\\"instances\\": [" + number + "]}");
            var request = HttpRequest.newBuilder(URI.create(urls[0])).POST(body).build();
            var response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.body());
        }
    }
}
"""


@pytest.fixture
def client():
    """Runs a client. Returns what it writes."""

    def run(*command, **options):
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def url(http_servers):
    return f"http://{http_servers().url}{PREDICT}"


@pytest.mark.slow
def test_the_client_of_a_jdk(client, url, tmp_path):
    (tmp_path / "Client.java").write_text(JAVA)
    told = client("java", str(tmp_path / "Client.java"), url)
    assert told.splitlines() == [f'200 {{"predictions":[{2 * number}]}}' for number in range(3)]


def test_curl_that_asks_for_http_2(client, url):
    told = client("curl", "-s", "--http2", "-d", '{"instances": [4]}', url)
    assert told == '{"predictions":[8]}'


@pytest.mark.parametrize("keeps", [(), ("-k",)])
def test_ab_speaks_http_1_0(client, url, tmp_path, keeps):
    (tmp_path / "body").write_text('{"instances": [4]}')
    told = client("ab", *keeps, "-n", "50", "-c", "5", "-p", str(tmp_path / "body"), url)
    assert re.search(r"Complete requests: +50\nFailed requests: +0\n", told)


def test_h2load_with_requests_that_do_not_wait(client, url, tmp_path):
    (tmp_path / "body").write_text('{"instances": [4]}')
    told = client("h2load", "--h1", "-n", "100", "-c", "4", "-m", "8", "-d",
                  str(tmp_path / "body"), url)  # fmt: skip
    assert "100 succeeded, 0 failed, 0 errored" in told


H2C = (
    b"POST /v1/models/double:predict HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Content-Length: 18\r\nHost: x\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    b"Upgrade: h2c\r\nUser-Agent: Java-http-client/17.0.1\r\n\r\n"
)


@pytest.mark.parametrize("at_once", [True, False])
def test_the_bytes_of_the_client_of_a_jdk(http_servers, send, at_once):
    body = b'{"instances": [1]}'
    connection = send.open(http_servers(), H2C + body if at_once else H2C)
    with connection.makefile("rb") as file:
        for _ in range(2):
            if not at_once:
                connection.sendall(body)
            assert file.readline() == b"HTTP/1.1 200 OK\r\n"
            while (line := file.readline()) != b"\r\n":
                assert b"upgrade" not in line.lower()
            assert file.read(19) == b'{"predictions":[2]}'
            connection.sendall(H2C + body if at_once else H2C)


def test_a_body_after_an_upgrade_is_no_request(http_servers, send):
    hidden = b"GET /v2/hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    head = H2C.replace(b"Length: 18", b"Length: %d" % len(hidden))
    connection = send.open(http_servers(), head)
    connection.sendall(hidden + b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    with connection.makefile("rb") as file:
        assert re.findall(rb"HTTP/1.1 (\d+)", file.read()) == [b"400", b"200"]
