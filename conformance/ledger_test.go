package conformance_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
)

// The public IDs of a row have one of the forms that the specifications use, and none is repeated.
func TestLedgerChecksPublicIDs(t *testing.T) {
	for ids, valid := range map[string]bool{
		"[C9-88, CA17-24, o10-37.2.30, oA19-2, V1C09-027#05, v1c07-007#01.02]": true,
		"[C9-88, C9-88]":     false,
		"[Table 45]":         false,
		"[9.7.5]":            false,
		"[V1C09-027]":        false,
		"[\"C9-88, C9-89\"]": false,
	} {
		text := "title: t\nsections:\n  - title: s\n    rows:\n      - id: a/1\n        level: MUST\n        ids: " + ids + "\n        text: It works.\n"
		if _, err := conformance.ReadLedger(fstest.MapFS{"a.yaml": {Data: []byte(text)}}); (err == nil) != valid {
			t.Errorf("%s: %v", ids, err)
		}
	}
}

func TestLedgerRejectsInvalidRows(t *testing.T) {
	const doc = "title: t\nsections:\n  - title: s\n    rows:\n"
	const good = "      - {id: a/1, level: MUST, text: It works.}\n"
	for _, tc := range []struct{ rows, other, want string }{
		{good, "", ""},
		{"      - {id: a/1, level: SHOULD, text: It works., untestable: no peer sees it}\n", "", ""},
		{"      - {id: a/1, level: MAY, text: It works., cases: [a/b/c]}\n", "", ""},
		{"      - {level: MUST, text: It works.}\n", "", "needs the keys"},
		{"      - {id: a/1, level: MUST}\n", "", "needs the keys"},
		{"      - {id: a/1, level: must, text: It works.}\n", "", "none of MUST, SHOULD, MAY"},
		{"      - {id: a/1, level: MUST, text: It works., untestable: why, cases: [a/b/c]}\n", "", "an untestable row has cases"},
		{"      - {id: a/1, level: MUST, text: It works., why: x}\n", "", "field why not found"},
		{good + good, "", "is in a.yaml already"},
		{good, good, "ledger b.yaml: row a/1 is in a.yaml already"},
	} {
		files := fstest.MapFS{"a.yaml": {Data: []byte(doc + tc.rows)}}
		if tc.other != "" {
			files["b.yaml"] = &fstest.MapFile{Data: []byte(doc + tc.other)}
		}
		docs, err := conformance.ReadLedger(files)
		if err == nil && (len(docs) != 1 || docs[0].Key != "a" || docs[0].Sections[0].Rows[0].ID != "a/1") {
			t.Errorf("%s: read %+v", tc.rows, docs)
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.rows, err, tc.want)
		}
	}
}

func TestCoverageCountsRows(t *testing.T) {
	cases := []string{"a/b/c"}
	doc := conformance.Document{Sections: []conformance.Section{
		{Rows: []conformance.Row{{Level: "MUST", Cases: cases}, {Level: "MUST"}, {Level: "MUST"}, {Level: "MUST"}, {Level: "MUST", Untestable: "why"}}},
		{Rows: []conformance.Row{{Level: "SHOULD", Cases: cases}, {Level: "MAY"}, {Level: "MUST", Cases: cases}, {Level: "MAY", Untestable: "why"}, {Level: "MAY", Cases: cases}}},
	}}
	want := conformance.Coverage{Rows: 10, Covered: 4, Untestable: 2, Musts: 5, MustsCovered: 2}
	if got := doc.Coverage(); got != want || got.Open() != 4 {
		t.Errorf("%+v with %d open, want %+v with 4", got, got.Open(), want)
	}
	rows := 0
	for range doc.Rows() {
		if rows++; rows == 6 {
			break
		}
	}
	if rows != 6 {
		t.Errorf("%d rows before the loop ends, want 6", rows)
	}
}

func TestLedgerHasDocuments(t *testing.T) {
	docs := must.Get(conformance.Ledger())(t)
	if len(docs) < 9 || docs[0].Key != "datagram-iwarp" || docs[0].Coverage().Rows == 0 {
		t.Errorf("%d documents", len(docs))
	}
}
