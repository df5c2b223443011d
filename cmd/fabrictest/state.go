package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report"
)

// stateRequests asks for the state of the ranks at each SIGUSR1.
func stateRequests() (requests <-chan struct{}, stop func()) {
	signals, all := make(chan os.Signal, 1), make(chan struct{})
	done := make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-signals:
			}
			select {
			case <-done:
				return
			case all <- struct{}{}:
			}
		}
	}()
	return all, func() {
		signal.Stop(signals)
		close(done)
	}
}

// printState prints the state of each rank.
func printState(show *report.Display, t *runner.Task, all []lab.RankState) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s:", t.Scenario.Name, t.Tier)
	for _, r := range all {
		fmt.Fprintf(&b, "\n  rank %d on %s: %s", r.Rank, r.Host, strings.ReplaceAll(strings.TrimSpace(r.State), "\n", "\n    "))
	}
	show.Note(b.String())
}
