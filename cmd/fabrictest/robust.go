package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
)

// printRobust prints the verdict of explore --robust, and writes the replay file of a run that differs.
func (o *exploreOptions) printRobust(out io.Writer, args []string, r *mpihost.Explored) error {
	b := r.Robust
	line := func(order, placement string, c *explore.Counts) {
		fmt.Fprintf(out, "Links %s, placement %s: %s with %s; the next run has a new result with probability %.2f\n",
			order, placement, cli.Plural(c.Runs, "run"), cli.Plural(c.Outcomes, "result"), c.Unseen)
	}
	line(orderKept, "strict", &b.Strong)
	line(o.order, o.placement, &b.Weak)
	if b.StrongFailures > 0 {
		fmt.Fprintf(out, "The program fails in order, too: %s. Explore it without --robust first.\n", cli.Plural(b.StrongFailures, "result"))
	}
	fmt.Fprintln(out, strings.ToUpper(string(b.Verdict))+map[mpihost.Verdict]string{
		mpihost.Robust:    ": these runs have no result that packets in order and strict placement do not have.",
		mpihost.NotRobust: ": the program depends on the order of packets or of writes to memory.",
		mpihost.Undecided: ": too many results were seen only once. Give more --runs, or explore fewer choices (--reorder, --strategy).",
	}[b.Verdict])
	if r.Failure == nil {
		return nil
	}
	printFailure(out, r.Failure)
	for _, p := range b.Calls {
		fmt.Fprintf(out, "Not complete when the order was changed: rank %d, %s at %s:%d\n", p.Rank, p.Call, p.File, p.Line)
	}
	return o.writeReplay(out, args, r.Failure)
}
