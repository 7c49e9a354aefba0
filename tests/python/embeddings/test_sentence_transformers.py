"""`Embedder` of models of sentence-transformers and transformers, with random weights."""

import pytest

pytest.importorskip("sentence_transformers")

import numpy as np
import tokenizers
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from service_streamer.embeddings import Embedder

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["one", " A text, WITH capitals.\n", "", "x " * 100]
TEXTS += [f"text number {number} " * (number % 9 + 1) for number in range(60)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Those of a model that embeds and one that ranks, with a tokenizer of letters."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,"
    names = [*SPECIAL, *letters, *(f"##{each}" for each in letters)]
    backend = tokenizers.Tokenizer(
        WordPiece({name: place for place, name in enumerate(names)}, unk_token="[UNK]")
    )
    backend.normalizer = BertNormalizer(lowercase=True)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    named = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=64,
        **dict(zip(named, SPECIAL, strict=True)),
    )
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 64, "vocab_size": len(names)}
    torch.manual_seed(7)
    found = []
    for kind, more in (
        (transformers.BertModel, {}),
        (transformers.BertForSequenceClassification, {"id2label": {0: "0"}, "label2id": {"0": 0}}),
    ):
        found.append(str(tmp_path_factory.mktemp("model")))
        kind(transformers.BertConfig(**sizes, **more)).save_pretrained(found[-1])
        tokenizer.save_pretrained(found[-1])
    return found


@pytest.mark.parametrize("prompts", [None, {"q": "query: "}])
def test_vectors_are_those_of_encode(folders, threads, prompts):
    default = None if prompts is None else "q"
    model = SentenceTransformer(
        folders[0], device="cpu", prompts=prompts, default_prompt_name=default
    )
    expected = model.encode(TEXTS)
    with Embedder(model) as embedder:
        assert ("encode()" in repr(embedder)) == (prompts is not None)
        for _ in range(4):
            threads.run(embedder.embed, TEXTS)
        for vectors in threads.join():
            np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_model_of_transformers_is_called_by_name(folders):
    model = transformers.AutoModel.from_pretrained(folders[0])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[0])
    expected = SentenceTransformer(folders[0], device="cpu").encode(
        TEXTS, normalize_embeddings=True
    )
    with Embedder(model, tokenizer) as embedder:
        np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-5)


def test_scores_are_those_of_a_cross_encoder(folders):
    model = CrossEncoder(folders[1], device="cpu")
    scores = model.predict([("a query", each) for each in TEXTS])
    alone = transformers.AutoModelForSequenceClassification.from_pretrained(folders[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[1])
    for arguments in ((model,), (alone, tokenizer)):
        with Embedder(*arguments) as embedder:
            assert "encode()" not in repr(embedder)
            for each in embedder.rerank("a query", TEXTS):
                assert each.score == pytest.approx(scores[each.index], abs=1e-4)
