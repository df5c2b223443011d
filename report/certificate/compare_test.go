package certificate

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/conform"
)

// emulated returns a folder of conform with a device of each transport.
func emulated(t *testing.T) string {
	t.Helper()
	run := judged(conform.Pass, conform.Pass)
	run.Devices[0].Name, run.Tier = "softroce", "sim"
	run.Devices = append(run.Devices, conform.Device{Name: "softiwarp", Title: "iWARP", Results: []conform.Result{
		{ID: "mpa/one", Suite: "iwarp", Title: "It works", Level: "MUST", Rows: []string{"other/1"}, Verdict: conform.Unsupported, Reason: "it does not claim <it>"},
	}})
	dir := t.TempDir()
	must.Get(conform.WriteFolder(dir, run))(t)
	return dir
}

// compared returns the comparison of a folder of conform and two certificates, and their folders.
func compared(t *testing.T) (c *Comparison, a, b string) {
	t.Helper()
	_, a = written(t, conform.Pass, conform.Fail, conform.Pass, conform.Deviates)
	_, b = written(t, conform.Pass, conform.Pass, conform.Unsupported, conform.Fail)
	c = must.Get(Compare([]string{emulated(t), a, b}))(t)
	return c, a, b
}

func TestComparison(t *testing.T) {
	c, _, _ := compared(t)
	for row, want := range map[string]struct {
		states  string
		differs bool
	}{
		"roce/rc/psn/0": {"pass,,pass,pass", false},
		"roce/rc/psn/1": {"pass,,fail,pass", true},
		"roce/rc/psn/2": {"not-asked,,pass,unsupported", false},
		"roce/rc/psn/3": {"not-asked,,deviates,fail", false}, // the same on both
		"roce/rc/psn/x": {"untestable,,untestable,untestable", false},
		"other/1":       {",unsupported,,", false},
	} {
		found := false
		for i := range c.Clauses {
			e := &c.Clauses[i]
			if e.Row != row {
				continue
			}
			found = true
			var states []string
			for _, s := range e.States {
				states = append(states, string(s))
			}
			if got := strings.Join(states, ","); got != want.states || e.Differs() != want.differs {
				t.Errorf("%s: %s %v, want %+v", row, got, e.Differs(), want)
			}
		}
		if !found {
			t.Errorf("%s is missing", row)
		}
	}
	if len(c.Clauses) != 6 || len(c.Columns) != 4 {
		t.Errorf("%d clauses of %d devices", len(c.Clauses), len(c.Columns))
	}
	if _, err := Compare([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestColumnNamesAreUnique(t *testing.T) {
	c, a, _ := compared(t)
	twice := must.Get(Compare([]string{a, a}))(t)
	names := make(map[string]bool)
	for _, col := range append(c.Columns, twice.Columns...) {
		names[col.Name] = true
	}
	// Both certificates are of rxe-6.1, in folders with different names.
	base := filepath.Base(a)
	for _, want := range []string{"softroce", "softiwarp", "rxe-6.1 of " + base, "rxe-6.1 of " + base + ", column 1", "rxe-6.1 of " + base + ", column 2"} {
		if !names[want] {
			t.Errorf("no column %q: %v", want, names)
		}
	}
}

func TestComparisonAsText(t *testing.T) {
	c, _, _ := compared(t)
	c.Columns[2].Name, c.Columns[3].Name = "rxe|6.1", "rxe-6.12"
	var text, whole, out bytes.Buffer
	must.Do(t, c.WriteMarkdown(&text, false))
	s := text.String()
	for _, want := range []string{
		// A document has only the devices that it applies to.
		`| row | level | clause | what it demands | softroce | rxe\|6.1 | rxe-6.12 |`,
		`| roce/rc/psn/1 | MUST |  | One \| of them. | met | **not met** | met |`,
		"| **softroce** | RoCEv2, emulated, in virtual time | MUST | 0 | 0 | 2 | 0 | 2 |",
		"does not conform | MUST | 1 | 1 | 2 | 0 | 0 |",
		"1 clause that some meet and others do not",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("Markdown does not contain %q:\n%s", want, s)
		}
	}
	if strings.Contains(s, "psn/0") || strings.Contains(s, "other/1") {
		t.Errorf("clauses without differences:\n%s", s)
	}
	if err := c.WriteMarkdown(&whole, true); err != nil || !strings.Contains(whole.String(), "psn/0") || !strings.Contains(whole.String(), "other/1") {
		t.Errorf("not all clauses: %v", err)
	}
	must.Do(t, c.WriteJSON(&out))
	var read Comparison
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || len(read.Clauses) != len(c.Clauses) {
		t.Errorf("JSON: %v", err)
	}
}

func TestComparisonAsPage(t *testing.T) {
	c, a, _ := compared(t)
	var page, alone bytes.Buffer
	must.Do(t, c.WriteHTML(&page, filepath.Dir(a)))
	for _, want := range []string{
		"4 devices, and 1 clause that some meet and others do not",
		`href="` + filepath.Base(a) + `/certificate.html#c.rxe0.rc-psn-c1"`,
		"it does not claim &lt;it&gt;", "emulated, in virtual time", "Does not conform",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if err := c.WriteHTML(&alone, ""); err != nil || strings.Contains(alone.String(), "certificate.html") {
		t.Errorf("a page without a folder has links, or %v", err)
	}
}
