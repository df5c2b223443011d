package kernel

import (
	"strings"
	"testing"
)

// Without a direction, packets are impaired both ways.
func TestParseImpairmentImpairsBothWays(t *testing.T) {
	for words, want := range map[string]struct{ out, in int }{
		"loss=5%": {1, 1}, "loss=5% way=out": {1, 0}, "way=in delay=1ms": {0, 1}, "clean": {0, 0},
	} {
		m, err := ParseImpairment("guest 1", strings.Fields(words))
		if err != nil || len(m.Out) != want.out || len(m.In) != want.in {
			t.Errorf("%s: %+v, %v", words, m, err)
		}
	}
	m, err := ParseImpairFlag("loss=5% duplicate=1%")
	if err != nil || m.Out[0].LossPPM != 50_000 || m.In[0].DuplicatePPM != 10_000 {
		t.Errorf("%+v, %v", m, err)
	}
}
