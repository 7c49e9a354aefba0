"""`Embedder` of modules of torch, a package, and models with a tokenizer of their own."""

import threading

import pytest
from torch_examples import marks

pytest.importorskip("numpy")

import numpy as np
from embedding_models import VOCABULARY, Words

from service_streamer import Streamer
from service_streamer.embeddings import Embedder, InvalidRequest, WrongTask

pytestmark = marks()

TEXTS = ["one", "a much longer text than all of the others are", "", "one two"]
POOLED = {
    "mean": lambda rows: rows.mean(0),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}


@pytest.fixture(scope="module")
def kinds(torch):
    """The classes of the modules, by name."""
    nn = torch.nn

    class Encoder(nn.Module):
        """A layer of attention, with dropout if it is not in eval mode."""

        def __init__(self, width=8):
            super().__init__()
            self.table, self.types = nn.Embedding(VOCABULARY, width), nn.Embedding(2, width)
            self.query, self.dropout = nn.Linear(width, width), nn.Dropout(0.5)

        def forward(self, input_ids, attention_mask, token_type_ids=None, return_dict=True):
            types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
            tokens = self.dropout(self.table(input_ids) + self.types(types))
            scores = self.query(tokens) @ tokens.transpose(1, 2)
            scores = scores.masked_fill(attention_mask[:, None] == 0, -1e9)
            return {"other": input_ids, "last_hidden_state": scores.softmax(-1) @ tokens}

    class Packed(nn.Module):
        """The same in packed batches."""

        def __init__(self):
            super().__init__()
            self.encoder = Encoder()

        def forward(self, input_ids, cu_seqlens, position_ids, max_seqlen):
            texts = input_ids.split(cu_seqlens.diff().tolist())
            assert max(map(len, texts)) == max_seqlen
            found = [self.encoder(each[None], torch.ones_like(each)[None]) for each in texts]
            return torch.cat([each["last_hidden_state"][0] for each in found])

    class Ranker(nn.Module):
        def __init__(self, wide=1):
            super().__init__()
            self.encoder, self.head = Encoder(), nn.Linear(8, wide)

        def forward(self, *arguments, **named):
            hidden = self.encoder(*arguments, **named)["last_hidden_state"]
            return {"logits": self.head(hidden[:, 0])}

    class Typed(Ranker):
        def forward(self, input_ids, attention_mask=None, token_type_ids=None):
            return super().forward(input_ids, attention_mask, token_type_ids)

    class Plain(nn.Module):
        """Knows tokens by their ids only, and returns one row for each text."""

        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(VOCABULARY, 4)

        def forward(self, ids):
            is_token = (ids != 0)[:, :, None]
            return ((self.table(ids) * is_token).sum(1) / is_token.sum(1)).to(torch.bfloat16)

    return {each.__name__: each for each in (Encoder, Packed, Ranker, Typed, Plain)}


@pytest.fixture
def seeded(torch, kinds):
    """Makes a module with the same weights each time."""

    def make(name, *arguments):
        torch.manual_seed(7)
        return kinds[name](*arguments)

    return make


@pytest.fixture
def alone(torch):
    """Returns the last hidden state of a module for a text by itself."""

    def alone(module, *texts):
        found = Words()(*texts)
        ids, types = (torch.tensor([found[name]]) for name in ("input_ids", "token_type_ids"))
        with torch.no_grad():
            return module.eval()(ids, torch.ones_like(ids), types)

    return alone


def scaled(vector):
    return vector / np.linalg.norm(vector)


def means(alone, module, texts):
    """What an embedder makes of texts with a pooling of "mean"."""
    rows = [alone(module, each)["last_hidden_state"][0].numpy() for each in texts]
    return [scaled(each.mean(0)) for each in rows]


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("collate", ["pad", "stack", "pack"])
def test_a_module_makes_the_vectors_of_each_text_alone(seeded, alone, pooling, collate):
    module = seeded("Encoder").train()
    hidden = [alone(module, each)["last_hidden_state"][0].numpy() for each in TEXTS]
    expected = [scaled(POOLED[pooling](each)) for each in hidden]
    module = seeded("Packed" if collate == "pack" else "Encoder").train()
    with Embedder(module, Words(), pooling=pooling, collate=collate) as embedder:
        np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-5)


def test_a_module_is_moved_where_it_runs(seeded):
    module = seeded("Plain")
    with Embedder(module, Words(), device="cpu") as embedder:
        assert embedder.embed(TEXTS).shape == (4, 4)
    with pytest.raises(ValueError, match="device must be"):
        Embedder(module, Words(), device="no")
    with pytest.raises(TypeError, match="Plain has no 'cu_seqlens'"):
        Embedder(module, Words(), collate="pack")


def test_a_module_that_knows_padding_by_its_id(seeded, torch):
    module = seeded("Plain")
    with Embedder(module, Words(), normalize=False) as embedder:
        vectors = embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.no_grad():
            expected = module(torch.tensor([Words()(text)["input_ids"]]))[0].float()
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-2)


def test_many_threads(seeded, alone, threads):
    module = seeded("Encoder")
    texts = [f"text {number} " * (number % 7 + 1) for number in range(100)]
    expected = means(alone, module, texts)
    with Embedder(module, Words(), max_tokens=200) as embedder:
        for start in range(20):
            threads.run(embedder.embed, texts[start : start + 80])
        for start, vectors in enumerate(threads.join()):
            np.testing.assert_allclose(vectors, expected[start : start + 80], atol=1e-5)


@pytest.mark.parametrize("name", ["Ranker", "Typed"])
def test_a_cross_encoder_ranks(seeded, alone, name, torch):
    module = seeded(name)
    logits = [alone(module, "one text", each)["logits"].item() for each in TEXTS]
    if name == "Ranker":  # its arguments have no names, so it gets no types
        logits = []
        for each in TEXTS:
            ids = torch.tensor([Words()("one text", each)["input_ids"]])
            logits.append(module(ids, torch.ones_like(ids))["logits"].item())
    expected = sorted(((value, place) for place, value in enumerate(logits)), reverse=True)
    with Embedder(module, Words()) as embedder:
        ranking = embedder.rerank("one text", TEXTS)
        assert [each.index for each in ranking] == [place for _, place in expected]
        scores = [1 / (1 + np.exp(-value)) for value, _ in expected]
        np.testing.assert_allclose([each.score for each in ranking], scores, rtol=1e-4)
        with pytest.raises(WrongTask, match="reranks and does not embed"):
            embedder.embed("one")
    with Embedder(seeded(name, 2), Words()) as two, pytest.raises(WrongTask, match="not rerank"):
        two.rerank("one text", TEXTS)


def test_an_index_that_the_table_lacks_fails_alone(seeded, threads):
    def large(text):
        return [VOCABULARY + 5] if text == "bad" else [5, 6]

    with Embedder(seeded("Plain"), large) as embedder:
        threads.run(embedder.embed, ["good"])
        threads.run(embedder.embed, ["bad"])
        good, bad = threads.join()
    assert good.shape == (1, 4)
    assert isinstance(bad, IndexError)


def test_a_module_in_a_worker_process(seeded):
    module = seeded("Plain")
    with Embedder(module, Words()) as here:
        expected = here.embed(TEXTS)
    with Embedder(module, Words(), streamer=Streamer, mp_start_method="fork") as embedder:
        np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-3)


# ------------------------------------------------- models with a tokenizer of their own


class Own:
    """As a SentenceTransformer: it has a tokenizer, and `forward` takes a dict."""

    max_seq_length = 6

    def __init__(self, module, torch, prompt=""):
        self.tokenizer, self._module, self._torch, self._prompt = Words(), module, torch, prompt
        self.encoded = 0

    def forward(self, features):
        found = self._module(**features)["last_hidden_state"]
        mask = features["attention_mask"][:, :, None]
        return {**features, "sentence_embedding": (found * mask).sum(1) / mask.sum(1)}

    __call__ = forward

    def encode(self, texts):
        self.encoded += 1
        rows = []
        for text in texts:
            found = self.tokenizer(self._prompt + text, truncation=True, max_length=6)
            features = {"input_ids": self._torch.tensor([found["input_ids"]])}
            features["attention_mask"] = self._torch.ones_like(features["input_ids"])
            rows.append(self.forward(features)["sentence_embedding"][0].detach())
        return self._torch.stack(rows)


@pytest.mark.parametrize("prompt", ["", "query: "])
def test_the_parts_of_a_model_are_used_if_they_answer_as_encode_does(seeded, torch, prompt):
    model = Own(seeded("Encoder").eval(), torch, prompt)
    expected = model.encode(TEXTS).numpy()
    with Embedder(model) as embedder:
        model.encoded = 0
        np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-5)
        assert bool(model.encoded) == bool(prompt)
        assert bool(model.tokenizer.threads - {threading.get_ident()}) == bool(prompt)
        if prompt:
            with pytest.raises(InvalidRequest, match="must be a str, as the model tokenizes"):
                embedder.embed([[5, 6]])
        else:
            assert embedder.embed([[5, 6]]).shape == (1, 8)


def test_the_parts_of_a_cross_encoder_are_used(seeded, torch):
    class Cross:
        tokenizer, model, activation_fn = Words(), seeded("Typed").eval(), torch.nn.Tanh()
        predicted = 0

        def predict(self, pairs, batch_size=32, show_progress_bar=None):
            self.predicted += 1
            scores = []
            for pair in pairs:
                found = self.tokenizer(*pair)
                ids, types = (
                    torch.tensor([found[name]]) for name in ("input_ids", "token_type_ids")
                )
                logits = self.model(ids, torch.ones_like(ids), types)["logits"]
                scores.append(self.activation_fn(logits).item())
            return scores

    model = Cross()
    scores = model.predict([("one text", each) for each in TEXTS])
    with Embedder(model) as embedder:
        model.predicted = 0
        ranking = embedder.rerank("one text", TEXTS)
        assert model.predicted == 0
    assert [each.index for each in ranking] == list(np.argsort(scores)[::-1])
    np.testing.assert_allclose(sorted(each.score for each in ranking), sorted(scores), atol=1e-5)


def test_a_package_of_torch_compile_makes_vectors(seeded, alone, torch, tmp_path):
    pytest.importorskip("service_streamer._torch")
    from service_streamer.torch import compile as make_package

    class Last(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, ids, mask):
            return self.module(ids, mask)["last_hidden_state"]

    module = seeded("Encoder").eval()
    example = (torch.ones(4, 16, dtype=torch.int64), torch.ones(4, 16, dtype=torch.int64))
    path = str(tmp_path / "encoder.pt2")
    make_package(Last(module).eval(), example, path, max_batch=8, sequence=64)
    expected = means(alone, module, TEXTS)
    with Embedder(path, lambda text: Words()(text)["input_ids"]) as embedder:
        np.testing.assert_allclose(embedder.embed(TEXTS * 5), expected * 5, atol=1e-5)
