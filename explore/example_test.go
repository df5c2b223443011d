package explore_test

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/explore"
)

// locks is a machine of two threads that take two locks in opposite order, and release them.
type locks struct {
	steps [2]int    // that each thread has taken
	owner [2]string // of each lock
}

// wants is the lock that a thread takes next.
func (l *locks) wants(thread int) int { return (thread + l.steps[thread]) % 2 }

func (l *locks) Enabled(into []explore.Step) []explore.Step {
	for thread, steps := range l.steps {
		if steps == 2 || steps < 2 && l.owner[l.wants(thread)] == "" {
			into = append(into, explore.Step{Kind: "thread", A: int32(thread)})
		}
	}
	return into
}

func (l *locks) Take(s explore.Step) error {
	if l.steps[s.A] == 2 {
		l.owner = [2]string{}
	} else {
		l.owner[l.wants(int(s.A))] = fmt.Sprint("thread ", s.A)
	}
	l.steps[s.A]++
	return nil
}

func (l *locks) Check() error          { return nil }
func (l *locks) Fingerprint() [16]byte { return explore.Hash(fmt.Append(nil, *l)) }

func (l *locks) Clone(explore.Machine) explore.Machine {
	c := *l
	return &c
}

func (l *locks) Finish() error {
	if l.steps != [2]int{3, 3} {
		return fmt.Errorf("%w: the locks are held by %q", explore.ErrDeadlock, l.owner)
	}
	return nil
}

func ExampleMachines() {
	r, err := explore.Machines(context.Background(), explore.Options{}, func() explore.Machine { return new(locks) })
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Failure.Err)
	fmt.Println(r.Failure.Path)
	// Output:
	// deadlock: the locks are held by ["thread 0" "thread 1"]
	// thread:0/2 thread:1/2
}
