"""Models of scikit-learn, saved with joblib, in a thread.

pip install service-streamer-ng numpy scikit-learn
python sklearn_model.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import joblib
import numpy as np
import pays
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from service_streamer import ThreadedStreamer

MODELS = {
    "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression()),
    "RandomForestClassifier": RandomForestClassifier(n_estimators=100, random_state=0),
    "HistGradientBoostingClassifier": HistGradientBoostingClassifier(random_state=0),
}


def load(path: Path):
    """The file is a pickle: load only files that you trust, with the version that wrote them."""
    model = joblib.load(path)

    def predict(batch):
        return model.predict_proba(np.stack(batch))

    return predict


def main() -> None:
    rows, labels = make_classification(1000, 32, random_state=0)
    for name, model in MODELS.items():
        print(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.joblib")
            joblib.dump(model.fit(rows, labels), path)
            predict = load(path)
        items = list(rows[:64])
        pays.report(predict, items)
        pays.compare(ThreadedStreamer(predict, batch_size=64), predict, items)


if __name__ == "__main__":
    main()
