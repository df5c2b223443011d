package work

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// All returns every workload, simple patterns first.
func All() []*Workload {
	return []*Workload{
		pingpong(), bothway(), multipair(), ring(), barrier(), alltoall(), smoke(), star(), neighbours(),
		overlap(), progress(), spectrum(), putget(),
		exchange1(), exchange2(),
		conjugateGradient(), blockTridiagonal(), scalarPentadiagonal(), wavefront(), multigrid(), fourier(), integerSort(),
		radixSort(), nbody(), algebraicMultigrid(), semicoarsening(), triangularSolve(), linpack(),
	}
}

// Find returns the workload with a name. The error suggests similar names.
func Find(name string) (*Workload, error) {
	var names []string
	for _, w := range All() {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	if guesses := cmdline.Similar(name, names); len(guesses) > 0 {
		return nil, fmt.Errorf("no workload %q; is it %s?", name, strings.Join(guesses, " or "))
	}
	return nil, fmt.Errorf("no workload %q; there are %s", name, strings.Join(names, ", "))
}
