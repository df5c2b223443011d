package engine

import (
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// No octet of a Write is placed before its FPDU is whole and its CRC was found
// right. Each of the two has a defect that forgets it; rights none forgets.
func TestNothingIsPlacedTooEarly(t *testing.T) {
	const half, whole = 20, 28 // octets of the FPDU
	for defect, want := range map[string][2]string{
		"":             {"", ""},
		"PlacesEarly":  {"ABCD", "ABCD"},
		"HandsUpFirst": {"", "ABCDEFGH"},
	} {
		for _, access := range []verbs.Access{allAccess, verbs.AccessLocalWrite} {
			h := newHost(t, func(cfg *Config, _ *QPConfig) {
				if defect != "" {
					if err := cfg.Defects.Set(defect, true); err != nil {
						t.Fatal(err)
					}
				}
			})
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			r, mem := h.region(8, access)
			g := write(r.Key, r.Addr, []byte("ABCDEFGH"))
			b := k.framer.Append(nil, g.Append(nil))
			b[len(b)-1] ^= 1 // of the CRC
			if len(b) != whole {
				t.Fatalf("an FPDU of %d octets", len(b))
			}
			if access != allAccess {
				want = [2]string{}
			}
			for i, part := range [][]byte{b[:half], b[half:]} {
				k.give(0, part)
				if got := strings.TrimRight(string(mem), "\x00"); got != want[i] {
					t.Errorf("%q, access %#x: %q placed of part %d", defect, access, got, i)
				}
			}
		}
	}
}

// The documentation has a line for every defect of siw that a defect imitates, and
// names no defect that is not there.
func TestDefectsOfSiwAreListed(t *testing.T) {
	const doc = "../../../docs/softiwarp.md"
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Defects of siw")
	if !ok {
		t.Fatalf("%s has no list of siw's defects", doc)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	_, rows, ok := strings.Cut(table, "|---|---|\n")
	if !ok {
		t.Fatalf("%s has no table of siw's defects", doc)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(rows) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			break // behind the table
		}
		for name := range strings.SplitSeq(cells[2], ",") {
			listed[strings.Trim(name, " `")] = true
		}
	}
	for _, q := range AllDefects() {
		if strings.HasPrefix(q.Imitates, "siw") && !listed[q.Name] {
			t.Errorf("%s does not list %s", doc, q.Name)
		}
		delete(listed, q.Name)
	}
	for name := range listed {
		t.Errorf("%s lists %q, which is no defect", doc, name)
	}
}
