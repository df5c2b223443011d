package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

// pool judges mutants in worker processes.
type pool struct {
	program  string // with all mutants
	cases    selection
	baseline string // file of writeBaseline
}

// judge runs the conformance cases with each of the mutants, in the given number of worker
// processes. The results, in the same order, say which mutants the cases kill.
func (p *pool) judge(ctx context.Context, mutants []mutant.Mutant, workers int) ([]result, error) {
	results := make([]result, len(mutants))
	err := parallel(len(mutants), workers, "judged", func(next func() (int, bool)) error {
		for {
			crashed, err := p.runWorker(ctx, mutants, results, next)
			if err != nil || !crashed {
				return err
			}
		}
	})
	return results, err
}

// runWorker runs one worker process, which runs the cases with the mutants whose indexes next
// returns, until there are no more. If a mutant ends the worker before, crashed is true, and the
// caller starts another worker for the rest.
func (p *pool) runWorker(ctx context.Context, mutants []mutant.Mutant, results []result, next func() (int, bool)) (crashed bool, err error) {
	cmd := exec.CommandContext(ctx, p.program, append(p.cases.flags(), "-worker", p.baseline)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	defer func() {
		in.Close()
		_ = cmd.Wait() // the worker may have crashed
	}()
	dec := json.NewDecoder(out)
	for {
		i, ok := next()
		if !ok {
			return false, ctx.Err()
		}
		_, _ = fmt.Fprintln(in, mutants[i].Name) // if it fails, so does Decode
		switch err := dec.Decode(&results[i]); {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, io.EOF): // the worker crashed in a case, and did not say in which
			const atLeastOne = 1 // case calls the mutated function: the one that crashed
			results[i] = result{Mutant: mutants[i].Name, Reached: atLeastOne, KilledBy: "(any)", How: "crash"}
			return true, nil
		case err != nil:
			return false, err
		case slices.Contains([]string{endlessLoop, outOfMemory, hang}, results[i].How):
			return true, nil
		}
	}
}

// parallel calls work in the given number of goroutines. Calls of next return the numbers 0 to n-1,
// each once, and then false. Each call also says that the work with the goroutine's last number is
// done. parallel prints progress, such as "50 of 100 judged", where participle is the last word.
func parallel(n, workers int, participle string, work func(next func() (int, bool)) error) error {
	var mu sync.Mutex
	taken, done := 0, 0
	errs := make([]error, workers)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			hasNumber := false
			errs[i] = work(func() (int, bool) {
				mu.Lock()
				defer mu.Unlock()
				if hasNumber {
					if done++; done%50 == 0 || done == n {
						fmt.Fprintf(os.Stderr, "%d of %d %s\n", done, n, participle)
					}
				}
				if hasNumber = taken < n; !hasNumber {
					return 0, false
				}
				taken++
				return taken - 1, true
			})
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
