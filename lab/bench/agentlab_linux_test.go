package bench

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestAgentInNamespaces(t *testing.T) {
	t.Parallel()
	const workers, retries = 2, 3
	for _, p := range nics.All() {
		t.Run(p.Name, func(t *testing.T) {
			direct := lab(t, p.Name, NamespaceOptions{Parallel: workers})
			remote := must.Get(throughAgent(direct))(t)
			defer func() { must.Do(t, remote.Close()) }()
			compare(t, sampleCases(p.Protocol, 40), direct, remote, workers, retries)
		})
	}
}
