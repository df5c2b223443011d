package main

import (
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

// Ways to kill a mutant, beside the verdicts of cases.
const (
	endlessLoop = "endless loop"
	outOfMemory = "out of memory"
	byTests     = "tests"
)

// count is the outcome of a package: its mutants, and those that cases and Go tests killed.
type count struct{ mutants, byCases, byTests int }

// report prints the mutants that survived, and how many of each package were killed. It returns an
// error if the conformance cases killed a smaller share of the mutants than minimum (0 to 1); kills
// by Go tests do not count.
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
				c.byTests++
			case results[i].KilledBy != "":
				c.byCases++
			}
		}
		if results[i].KilledBy == "" {
			reached := fmt.Sprintf("%d cases call the function", results[i].Reached)
			if results[i].Reached == 0 {
				reached = "no case calls the function"
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
	if share := float64(sum.byCases) / float64(sum.mutants); share < minimum {
		return fmt.Errorf("the cases kill %.1f %% of the mutants, want %.1f %%", 100*share, 100*minimum)
	}
	return nil
}

// print prints a line of the table: the mutants, the share that cases killed, the share that
// cases or tests killed, and the number of survivors.
func (c *count) print(w io.Writer, name string) {
	killed := c.byCases + c.byTests
	fmt.Fprintf(w, "%-40s %8d %7.1f%% %7.1f%% %8d\n", name, c.mutants, 100*float64(c.byCases)/float64(c.mutants),
		100*float64(killed)/float64(c.mutants), c.mutants-killed)
}
