package bench

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestAgentInNamespaces(t *testing.T) {
	t.Parallel()
	const workers, again = 2, 3
	for _, p := range protocols {
		t.Run(p.provider, func(t *testing.T) {
			near := lab(t, p.provider, NamespaceOptions{Parallel: workers})
			far := must.Get(throughAgent(near))(t)
			defer func() { must.Do(t, far.Close()) }()
			compare(t, someCases(p.protocol, 40), near, far, workers, again)
		})
	}
}
