package wire

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	specRow  = regexp.MustCompile("(?m)^\\| `(dg/[a-z]+)/(\\d+)` \\| (.*?) \\| (.*?) \\| (.*?) \\| (.*?) \\|$")
	specTest = regexp.MustCompile("`(wire|rd|engine)\\.((?:Test|Fuzz)\\w+)`")
)

// specRows is the number of requirements in the specification.
const specRows = 101

// Requirements have consecutive numbers, a level, a sentence, a reason, and tests that exist.
func TestSpecificationRequirementsAreComplete(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/spec/datagram-iwarp.md"))(t)
	exist := existingTests(t)
	rows := specRow.FindAllStringSubmatch(string(text), -1)
	if lines := strings.Count(string(text), "\n| `dg/"); len(rows) != specRows || lines != specRows {
		t.Errorf("%d requirements in %d rows, want %d: was a row lost, or is specRows outdated?", len(rows), lines, specRows)
	}
	last := map[string]int{}
	for _, m := range rows {
		area, number, level, sentence, reason, where := m[1], m[2], m[3], m[4], m[5], m[6]
		id := area + "/" + number
		if last[area]++; number != strconv.Itoa(last[area]) {
			t.Errorf("%s, want %s/%d", id, area, last[area])
		}
		if level != "MUST" && level != "SHOULD" && level != "MAY" {
			t.Errorf("%s has level %q", id, level)
		}
		if !strings.HasSuffix(sentence, ".") || !strings.HasSuffix(reason, ".") {
			t.Errorf("%s: %q, %q: not sentences", id, sentence, reason)
		}
		tests := specTest.FindAllStringSubmatch(where, -1)
		if len(tests) == 0 || strings.Count(where, ".") != len(tests) {
			t.Errorf("%s: no test in %s", id, where)
		}
		for _, name := range tests {
			if !exist[name[1]+"."+name[2]] {
				t.Errorf("%s: there is no test %s.%s", id, name[1], name[2])
			}
		}
	}
}

func existingTests(t *testing.T) map[string]bool {
	t.Helper()
	exist := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, dir := range []string{"wire", "rd", "engine"} {
		files := must.Get(os.ReadDir("../" + dir))(t)
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			text := must.Get(os.ReadFile("../" + dir + "/" + f.Name()))(t)
			for _, m := range function.FindAllSubmatch(text, -1) {
				exist[dir+"."+string(m[1])] = true
			}
		}
	}
	return exist
}
