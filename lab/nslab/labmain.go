package nslab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// LabMain is what a lab process does: it runs the scenario that it reads from
// its standard input, and reports. It returns an error only if there is nobody
// to report to.
func LabMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer stop()
	var job labJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	news := &newspaper{to: json.NewEncoder(os.NewFile(newsFD, "news"))}
	job.Options.Progress, job.Options.State = news.progress, news.state
	ask := make(chan struct{}, 1)
	job.Options.Ask = ask
	go onSignal(syscall.SIGUSR1, ask)
	s, err := scenarios.Parse(job.Name+".yaml", []byte(job.Scenario))
	if err != nil {
		return err
	}
	return news.result(play(ctx, s, job.Options))
}

// newspaper is how a lab process tells how it is getting on. Goroutines share
// it.
type newspaper struct {
	mu sync.Mutex
	to *json.Encoder
}

func (n *newspaper) progress(p lab.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.to.Encode(labNews{Progress: &p}) // nobody may care; the result matters
}

func (n *newspaper) state(all []lab.RankState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.to.Encode(labNews{State: all}) // as with progress
}

// onSignal asks for something on every signal; once is enough while nobody looks.
func onSignal(s os.Signal, ask chan<- struct{}) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, s)
	for range signals {
		select {
		case ask <- struct{}{}:
		default:
		}
	}
}

func (n *newspaper) result(r *report.Result) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.to.Encode(labNews{Result: r})
}
