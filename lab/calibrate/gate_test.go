package calibrate

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

var update = flag.Bool("update", false, "write gate.txt")

// The results of all cases are those of the record. After a change that is meant, write the new
// record with -update, and review its difference.
func TestGate(t *testing.T) {
	got := must.Get(MeasureGate(GateCases()))(t)
	if *update {
		f := must.Get(os.Create("gate.txt"))(t)
		must.Do(t, got.Write(f))
		must.Do(t, f.Close())
	}
	want := must.Get(ParseGateRecord(string(must.Get(os.ReadFile("gate.txt"))(t))))(t)
	if d := want.Compare(got); !d.Same() {
		var text strings.Builder
		must.Do(t, d.WriteText(&text))
		t.Error(text.String())
	}
}
