package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// askedBySignal asks for the state of ranks whenever somebody sends SIGUSR1.
func askedBySignal() (ask <-chan struct{}, stop func()) {
	signals, asked := make(chan os.Signal, 1), make(chan struct{})
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
			case asked <- struct{}{}:
			}
		}
	}()
	return asked, func() {
		signal.Stop(signals)
		close(done)
	}
}

// tellState prints what each rank is at.
func tellState(show *report.Display, t *task, all []lab.RankState) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s:", t.scenario.Name, t.tier)
	for _, r := range all {
		fmt.Fprintf(&b, "\n  rank %d on %s: %s", r.Rank, r.Host, strings.ReplaceAll(strings.TrimSpace(r.State), "\n", "\n    "))
	}
	show.Note(b.String())
}
