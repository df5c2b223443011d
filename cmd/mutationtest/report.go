package main

import (
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

// Ways to notice a mutant, beside the verdicts of cases.
const (
	endlessLoop = "endless loop"
	outOfMemory = "out of memory"
	byTests     = "tests"
)

// count is the outcome of a package.
type count struct{ mutants, cases, tests int }

// report prints the counts of each package and the mutants that nothing noticed. It
// returns an error if cases noticed less than a share of all.
func report(w io.Writer, all []mutant.Mutant, results []result, minimum float64) error {
	counts := map[string]*count{}
	var folders []string
	sum := count{}
	for i := range all {
		folder := path.Dir(all[i].Hunks[0].File)
		c := counts[folder]
		if c == nil {
			c = new(count)
			counts[folder] = c
			folders = append(folders, folder)
		}
		for _, c := range []*count{c, &sum} {
			c.mutants++
			switch {
			case results[i].How == byTests:
				c.tests++
			case results[i].KilledBy != "":
				c.cases++
			}
		}
		if results[i].KilledBy == "" {
			reached := fmt.Sprintf("%d cases call it", results[i].Reached)
			if results[i].Reached == 0 {
				reached = "no case calls it"
			}
			fmt.Fprintf(w, "%s\n    %s\n    %s\n", all[i].Name, all[i].Does, reached)
		}
	}
	slices.Sort(folders)
	fmt.Fprintf(w, "\n%-40s %8s %8s %8s %8s\n", "package", "mutants", "cases", "tests", "left")
	for _, f := range folders {
		counts[f].print(w, f)
	}
	sum.print(w, "all")
	if share := float64(sum.cases) / float64(sum.mutants); share < minimum {
		return fmt.Errorf("cases notice %.1f %% of the mutants, want %.1f %%", 100*share, 100*minimum)
	}
	return nil
}

func (c *count) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%-40s %8d %7.1f%% %7.1f%% %8d\n", name, c.mutants, 100*float64(c.cases)/float64(c.mutants),
		100*float64(c.cases+c.tests)/float64(c.mutants), c.mutants-c.cases-c.tests)
}
