package bench

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestAgentInNamespaces(t *testing.T) {
	t.Parallel()
	const workers, again = 2, 3
	for _, p := range nics.All() {
		t.Run(p.Name, func(t *testing.T) {
			near := lab(t, p.Name, NamespaceOptions{Parallel: workers})
			far := must.Get(throughAgent(near))(t)
			defer func() { must.Do(t, far.Close()) }()
			compare(t, someCases(p.Protocol, 40), near, far, workers, again)
		})
	}
}
