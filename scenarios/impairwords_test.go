package scenarios

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Without a direction, packets are impaired both ways.
func TestImpairTextImpairsBothWays(t *testing.T) {
	fabric := Fabric{Kind: Star, Hosts: 3}
	for words, want := range map[string]struct{ out, in bool }{
		"loss=5%": {true, true}, "loss=5% way=out": {true, false}, "way=in delay=1ms": {false, true}, "way=both loss=1%": {true, true},
	} {
		text := must.Get(ImpairText(fabric, "host1", "host1", strings.Fields(words)))(t)
		s, err := Parse("set.yaml", []byte(text))
		if err != nil || len(s.Impair) != 1 || s.Impair[0].Outward() != want.out || s.Impair[0].Inward() != want.in {
			t.Errorf("%s: %v\n%s", words, err, text)
		}
	}
}
