package mpihost

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// runChecked runs a program on two ranks with checks.
func runChecked(program func(*mpi.World) error, names ...string) error {
	var o mpi.Options
	c, err := newCheckers(names, 2)
	if err != nil {
		return err
	}
	c.set(&o)
	_, err = InWorld(Fabric{Ranks: 2, Limit: 20 * time.Second, Explain: c.explain}, func(e *transport.Env) error { return mpi.Run(e, o, program) })
	return errors.Join(err, c.err())
}

func receiveFirst(w *mpi.World) error {
	if err := must.Err(w.Recv(nil, 1-w.Rank(), 7)); err != nil {
		return err
	}
	return w.Send(nil, 1-w.Rank(), 7)
}

// The report of a hang says which calls wait for which ranks, also without a check.
func TestHangHasWaitGraph(t *testing.T) {
	hung, ok := errors.AsType[*HungError](runChecked(receiveFirst))
	if !ok {
		t.Fatal("the ranks do not hang")
	}
	for _, want := range []string{
		"deadlock: receives head to head: rank 0 in Recv at mpihost/checks_test.go:", "waits for a message from rank 1 with tag 7 on world",
		"cycle: rank 0 waits for 1 waits for 0",
	} {
		if !strings.Contains(hung.Error(), want) {
			t.Errorf("%v\nwant %q", hung, want)
		}
	}
}

// A check fails a run, and its findings are those of an exploration.
func TestChecksFailRuns(t *testing.T) {
	leak := func(w *mpi.World) error { return must.Err(w.Dup()) }
	anySource := func(w *mpi.World) error {
		if err := w.Send(nil, 0, 1); err != nil || w.Rank() == 1 {
			return err
		}
		return errors.Join(must.Err(w.Recv(nil, mpi.AnySource, 1)), must.Err(w.Recv(nil, mpi.AnySource, 1)))
	}
	sendFirst := func(w *mpi.World) error {
		if err := w.Send(nil, 1-w.Rank(), 1); err != nil {
			return err
		}
		return must.Err(w.Recv(nil, 1-w.Rank(), 1))
	}
	for _, c := range []struct {
		check, kind string
		program     func(*mpi.World) error
	}{
		{CheckMisuse, "communicator never freed", leak},
		{CheckMisuse, "deadlock: receives head to head", receiveFirst},
		{CheckMessageRaces, "message race", anySource},
		{CheckUnsafe, "unsafe: depends on buffering", sendFirst},
	} {
		err := runChecked(c.program, c.check)
		found, ok := errors.AsType[*FindingsError](err)
		if !ok || len(found.Findings) != 1 || found.Findings[0].Kind != c.kind {
			t.Errorf("%s: %v, want %q", c.check, err, c.kind)
		}
	}
	if err := runChecked(leak); err != nil {
		t.Errorf("without a check: %v", err)
	}
}
