package main

import (
	"cmp"
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
	hang        = "hang"
	byTests     = "tests"
)

// count is the outcome of a package: its mutants without the equivalent ones, those that cases and
// Go tests killed, and the equivalent ones.
type count struct{ mutants, byCases, byTests, equivalent int }

// report prints the mutants that no case killed, and how many of each package were killed. It
// returns an error if the conformance cases killed a smaller share of the mutants than minimum
// (0 to 1), without the survivors whose reason says that they are equivalent.
func report(w io.Writer, reasons map[string]string, all []mutant.Mutant, results []result, minimum float64) error {
	counts := map[string]*count{}
	var folders []string
	sum := count{}
	for i := range all {
		folder := path.Dir(all[i].Hunks[0].File)
		if counts[folder] == nil {
			counts[folder] = new(count)
			folders = append(folders, folder)
		}
		reason := reasons[survivorKey(folder, all[i].Does)]
		// A test of the package may notice what no peer and no application can.
		equivalent := (results[i].KilledBy == "" || results[i].How == byTests) && isEquivalent(reason)
		for _, c := range []*count{counts[folder], &sum} {
			if equivalent {
				c.equivalent++
				continue
			}
			c.mutants++
			switch {
			case results[i].How == byTests:
				c.byTests++
			case results[i].KilledBy != "":
				c.byCases++
			}
		}
		if text := unnoticed(&results[i]); text != "" && !equivalent {
			fmt.Fprintf(w, "%s\n    %s\n    %s\n", all[i].Name, all[i].Does, cmp.Or(reason, text))
		}
	}
	slices.Sort(folders)
	fmt.Fprintf(w, "\n%-40s %8s %8s %8s %8s %10s\n", "package", "mutants", "cases", "tests", "left", "equivalent")
	for _, f := range folders {
		counts[f].print(w, f)
	}
	sum.print(w, "all")
	if share := float64(sum.byCases) / float64(sum.mutants); share < minimum {
		return fmt.Errorf("the cases kill %.1f %% of the mutants, want %.1f %%", 100*share, 100*minimum)
	}
	return nil
}

// unnoticed says that no case noticed a mutant, and how many could have. It is empty for a mutant
// that cases noticed, or that tests noticed without any case calling the function.
func unnoticed(r *result) string {
	switch {
	case r.How == byTests && r.Reached > 0:
		return fmt.Sprintf("%d cases call the function, and only tests notice it", r.Reached)
	case r.KilledBy != "":
		return ""
	case r.Reached == 0:
		return "no case calls the function"
	}
	return fmt.Sprintf("%d cases call the function", r.Reached)
}

// print prints a line of the table: the mutants, the share that cases killed, the share that
// cases or tests killed, the number of survivors, and the number of equivalent ones, which no other
// number includes.
func (c *count) print(w io.Writer, name string) {
	killed := c.byCases + c.byTests
	fmt.Fprintf(w, "%-40s %8d %7.1f%% %7.1f%% %8d %10d\n", name, c.mutants, 100*float64(c.byCases)/float64(c.mutants),
		100*float64(killed)/float64(c.mutants), c.mutants-killed, c.equivalent)
}
