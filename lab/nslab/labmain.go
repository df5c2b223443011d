package nslab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// LabMain is the main function of a lab process: it runs the scenario from its
// standard input, and reports. It returns an error only if it cannot report.
func LabMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	var job labJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	messages := &messageWriter{to: json.NewEncoder(os.NewFile(messagesFD, "messages"))}
	job.Options.OnProgress, job.Options.OnState = messages.progress, messages.state
	requests := make(chan os.Signal, 1)
	signal.Notify(requests, syscall.SIGUSR1)
	job.Options.StateRequests = requests
	s, err := scenarios.Parse(job.Name+".yaml", []byte(job.Scenario))
	if err != nil {
		return err
	}
	return messages.result(runScenario(ctx, s, job.Options))
}

// messageWriter writes the messages of a lab process. It is safe for concurrent
// use.
type messageWriter struct {
	mu sync.Mutex
	to *json.Encoder
}

func (w *messageWriter) progress(p lab.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.to.Encode(labMessage{Progress: &p}) // the reader may be gone
}

func (w *messageWriter) state(all []lab.RankState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.to.Encode(labMessage{State: all}) // the reader may be gone
}

func (w *messageWriter) result(r *report.Result) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Encode(labMessage{Result: r})
}
