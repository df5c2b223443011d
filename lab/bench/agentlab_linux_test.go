package bench

import "testing"

func TestAgentInNamespaces(t *testing.T) {
	t.Parallel()
	const workers, again = 2, 3
	for _, p := range protocols {
		t.Run(p.provider, func(t *testing.T) {
			near := lab(t, p.provider, NamespaceOptions{Parallel: workers})
			far, err := ThroughAgent(near)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := far.Close(); err != nil {
					t.Error(err)
				}
			}()
			compare(t, someCases(p.protocol, 40), near, far, workers, again)
		})
	}
}
