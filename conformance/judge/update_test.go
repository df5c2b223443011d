package judge_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
)

// updating is the flag -update; -update=less permits a decrease of coverage.
type updating struct{ on, less bool }

var update updating

func init() {
	flag.Var(&update, "update", "write the cases and the coverage into the ledger; \"less\" also if the coverage decreases")
}

func (u *updating) String() string   { return fmt.Sprint(u.on) }
func (u *updating) IsBoolFlag() bool { return true }

func (u *updating) Set(s string) error {
	switch s {
	case "true":
		*u = updating{on: true}
	case "false":
		*u = updating{}
	case "less":
		*u = updating{on: true, less: true}
	default:
		return fmt.Errorf("%q is none of true, false and less", s)
	}
	return nil
}

// updateLedger writes the cases and the coverage into the ledger. It writes nothing if the coverage
// decreases, unless -update=less.
func updateLedger(t *testing.T, docs []*conformance.Document, covered map[string][]string) {
	t.Helper()
	for _, d := range docs {
		for row := range d.Rows() {
			row.Cases = covered[row.ID]
		}
	}
	now, _ := coverage(docs)
	was := must.Get(os.ReadFile(coverageFile))(t)
	decreased, err := decreases(string(was), now)
	if err != nil {
		t.Fatalf("%s: %v", coverageFile, err)
	}
	if len(decreased) > 0 && !update.less {
		t.Fatalf("the ledger is not written: the coverage would decrease:\n  %s\nA case or a row is missing, or cites another row than before. If that is intended: -update=less", strings.Join(decreased, "\n  "))
	}
	for _, d := range docs {
		writeCases(t, filepath.Join(ledgerDir, d.Key+".yaml"), covered)
	}
	must.Do(t, os.WriteFile(coverageFile, []byte(now), 0o644))
}

// writeCases replaces the cases of each row in a file of the ledger, and keeps the other lines.
// The cases are the last key of a row.
func writeCases(t *testing.T, file string, casesByRow map[string][]string) {
	t.Helper()
	const casesLine, casePrefix = "        cases:\n", "          - "
	var out, pending string // pending are the cases of the current row
	inCases := false        // the line is one of the old cases
	for line := range strings.Lines(string(must.Get(os.ReadFile(file))(t))) {
		id, isRow := strings.CutPrefix(line, "      - id: ")
		if isRow || strings.HasPrefix(line, "  - title:") {
			out, pending = out+pending, ""
			if ids := casesByRow[strings.Trim(id, "\"\n")]; len(ids) > 0 {
				pending = casesLine + casePrefix + strings.Join(ids, "\n"+casePrefix) + "\n"
			}
		}
		if inCases = line == casesLine || inCases && strings.HasPrefix(line, casePrefix); !inCases {
			out += line
		}
	}
	must.Do(t, os.WriteFile(file, []byte(out+pending), 0o644))
}

// covers is a line of the coverage file.
type covers struct{ rows, covered, untestable, open, mustsCovered, musts int }

// parseCoverage parses the coverage file.
func parseCoverage(table string) (map[string]covers, error) {
	all := make(map[string]covers)
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[1:] { // the first is the header
		var name string
		var c covers
		if _, err := fmt.Sscanf(line, "%s %d %d %d %d %d/%d", &name, &c.rows, &c.covered, &c.untestable, &c.open, &c.mustsCovered, &c.musts); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all[name] = c
	}
	return all, nil
}

// decreases lists the documents with fewer rows, or fewer covered rows, than before.
func decreases(was, now string) (decreased []string, err error) {
	before, err := parseCoverage(was)
	if err != nil {
		return nil, err
	}
	after, err := parseCoverage(now)
	if err != nil {
		return nil, err
	}
	for name, b := range before {
		a := after[name]
		for _, n := range []struct {
			what     string
			was, now int
		}{
			{"rows", b.rows, a.rows},
			{"rows covered", b.covered, a.covered},
			{"testable MUSTs covered", b.mustsCovered, a.mustsCovered},
		} {
			if n.now < n.was {
				decreased = append(decreased, fmt.Sprintf("%s: %d %s, down from %d", name, n.now, n.what, n.was))
			}
		}
	}
	slices.Sort(decreased)
	return decreased, nil
}

func TestUpdateRejectsLowerCoverage(t *testing.T) {
	const was = `document          rows  covered  untestable  open    MUSTs
rfc5040             82       81           1     0   69/69
all                 82       81           1     0   69/69
`
	for _, test := range []struct {
		name, now string
		want      []string
	}{
		{"the same", was, nil},
		{"more", "…\nrfc5040 84 83 1 0 70/70\nnew 1 1 0 0 1/1\nall 85 84 1 0 71/71", nil},
		{"a row that lost its case", "…\nrfc5040 82 80 1 1 68/69\nall 83 82 1 0 70/70", []string{
			"rfc5040: 68 testable MUSTs covered, down from 69", "rfc5040: 80 rows covered, down from 81",
		}},
		{"a missing row", "…\nrfc5040 81 81 0 0 69/69\nall 82 82 0 0 70/70", []string{"rfc5040: 81 rows, down from 82"}},
		{"a missing document", "…\nall 82 81 1 0 69/69", []string{
			"rfc5040: 0 rows covered, down from 81", "rfc5040: 0 rows, down from 82", "rfc5040: 0 testable MUSTs covered, down from 69",
		}},
	} {
		got, err := decreases(was, test.now)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
	if _, err := decreases(was, "…\nrfc5040 82 many"); err == nil {
		t.Error("an invalid table was parsed")
	}
}

func TestWrongCitationsAreReported(t *testing.T) {
	docs := []*conformance.Document{{Sections: []conformance.Section{{Rows: []conformance.Row{{ID: "a/1"}, {ID: "a/2", Untestable: "not visible on the wire"}}}}}}
	for _, test := range []struct {
		covered map[string][]string
		want    []string
	}{
		{map[string][]string{"a/1": {"x"}}, nil},
		{map[string][]string{"a/1": {"x"}, "a/99": {"y"}}, []string{"[y] cite a/99, which is no row of the ledger: functions such as ibta add the part before the first slash"}},
		{map[string][]string{"a/2": {"z"}}, []string{"a/2 is untestable, and [z] cite it"}},
	} {
		if got := wrongCitations(docs, test.covered); !slices.Equal(got, test.want) {
			t.Errorf("%v: %q, want %q", test.covered, got, test.want)
		}
	}
}
