package mpihost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestEnvOfRanks(t *testing.T) {
	for _, p := range nics.All() {
		provider := p.Name
		seen := make([]*transport.Env, 5)
		var caps verbs.Caps
		out := must.Get(InWorld(Fabric{Ranks: 5, PerHost: 2, Rails: 2, Provider: provider, Seed: 9}, func(e *transport.Env) error {
			seen[e.Rank] = e
			attr, err := e.NICs[1].Device.QueryDevice()
			if err != nil {
				return err
			}
			caps = attr.Caps
			e.Proc.Sleep(time.Duration(e.Rank) * time.Millisecond)
			return e.Control.Barrier(verbs.Forever)
		}))(t)
		for i, e := range seen {
			if e.Rank != i || e.Size != 5 || e.Seed != 9 || e.Concurrent || !slices.Equal(e.Nodes, []int{0, 0, 1, 1, 2}) || len(e.NICs) != 2 {
				t.Errorf("%s: rank %d: %+v", provider, i, e)
			}
			for rail, nic := range e.NICs {
				if want := fmt.Sprintf("fd00:fab:%x::%x", rail, e.Nodes[i]+1); nic.Addr.String() != strings.Replace(want, ":0::", "::", 1) {
					t.Errorf("%s: rank %d rail %d is at %v, want %s", provider, i, rail, nic.Addr, want)
				}
				if info := nic.Device.Info(); info.Provider != provider || info.Name != fmt.Sprintf("host%d/rdma%d", e.Nodes[i], rail) {
					t.Errorf("rank %d: %+v", i, info)
				}
			}
			if out.Ranks[i].Ended != 4*time.Millisecond || out.Ranks[i].Killed {
				t.Errorf("rank %d: %+v", i, out.Ranks[i])
			}
		}
		if caps != cmp.Or(p.ReliableCaps, p.Caps) {
			t.Errorf("%s: capabilities %#x", provider, caps)
		}
		if out.Elapsed != 4*time.Millisecond || out.Events == 0 {
			t.Errorf("%+v", out)
		}
	}
}

func TestInvalidFabrics(t *testing.T) {
	for want, f := range map[string]Fabric{
		"0 ranks":               {},
		"-1 ranks per host":     {Ranks: 1, PerHost: -1},
		"no provider":           {Ranks: 1, Provider: "mlx5"},
		"rails":                 {Ranks: 1, Rails: 99},
		"supports only LossPPM": {Ranks: 1, Provider: "softiwarp", Impair: []impair.Spec{{Delay: 1}}},
		"loss_ppm":              {Ranks: 1, Impair: []impair.Spec{{LossPPM: impair.PPM + 1}}},
		"no option icrc":        {Ranks: 1, Provider: "dgiwarp", Setup: setupWithoutICRC()},
	} {
		ran := false
		if _, err := InWorld(f, func(*transport.Env) error { ran = true; return nil }); err == nil || !strings.Contains(err.Error(), want) || ran {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestRankErrorIsOfFirstFailure(t *testing.T) {
	failure := errors.New("failure")
	out, err := InWorld(Fabric{Ranks: 4, PerHost: 2}, func(e *transport.Env) error {
		e.Proc.Sleep(time.Duration(10-e.Rank) * time.Microsecond)
		if e.Rank == 0 {
			return nil
		}
		return failure
	})
	var first *RankError
	if !errors.As(err, &first) || !errors.Is(err, failure) || first.Rank != 3 || first.Host != 1 || first.Others != 2 {
		t.Errorf("%v", err)
	}
	if out.Ranks[0].Err != nil || out.Ranks[1].Err != failure {
		t.Errorf("%+v", out.Ranks)
	}
}

func TestHungErrorHasWaitReasons(t *testing.T) {
	_, err := InWorld(Fabric{Ranks: 12}, func(e *transport.Env) error {
		if e.Rank == 1 {
			e.Go("barrier", func(verbs.Proc) { _ = e.Control.Barrier(verbs.Forever) })
		}
		return must.Err(e.Control.Recv(11-e.Rank%2, verbs.Forever))
	})
	var h *HungError
	if !errors.As(err, &h) || len(h.Waiting) != 3 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"deadlock at 0s", "rank 0 on host0", "wait for a message from rank 10", "wait for a message from rank 11", "rank 1: barrier waits for the other ranks at a barrier"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
	_, err = InWorld(Fabric{Ranks: 1, Limit: time.Second}, func(e *transport.Env) error {
		for {
			e.Proc.Sleep(time.Millisecond)
		}
	})
	if !errors.As(err, &h) || !strings.Contains(err.Error(), "the limit of time is reached at 1s") {
		t.Errorf("%v", err)
	}
}

func TestTasksEndWithRank(t *testing.T) {
	ticks, unwound := 0, false
	_, err := InWorld(Fabric{Ranks: 2}, func(e *transport.Env) error {
		if e.Rank == 0 {
			e.Go("ticks", func(p verbs.Proc) {
				defer func() { unwound = true }()
				for {
					p.Sleep(time.Millisecond)
					ticks++
				}
			})
			e.Proc.Sleep(5500 * time.Microsecond)
			return nil
		}
		e.Proc.Sleep(time.Second)
		return nil
	})
	if err != nil || ticks != 5 || !unwound {
		t.Errorf("%v, %d ticks, unwound %v", err, ticks, unwound)
	}
}

func TestKillEndsRank(t *testing.T) {
	cleaned := false
	out, err := InWorld(Fabric{Ranks: 3, Script: func(w *World) {
		w.At(time.Millisecond, func() { w.Kill(1); w.Kill(1) })
	}}, func(e *transport.Env) error {
		switch e.Rank {
		case 0:
			if _, err := e.Control.Recv(1, verbs.Forever); !errors.Is(err, transport.ErrGone) {
				return fmt.Errorf("Recv from a killed rank: %v", err)
			}
			if err := e.Control.Send(1, nil); !errors.Is(err, transport.ErrGone) || !e.Control.Gone(1) || e.Control.Gone(2) {
				return fmt.Errorf("Send to a killed rank: %v", err)
			}
		case 1:
			defer func() { cleaned = true }()
			e.Proc.Sleep(time.Hour)
		case 2:
			return e.Control.Barrier(verbs.Forever) // with rank 0, which ends
		}
		return nil
	})
	if err != nil || !out.Ranks[1].Killed || out.Ranks[1].Ended != time.Millisecond || out.Elapsed != time.Millisecond || !cleaned {
		t.Errorf("%v, %+v, cleaned %v", err, out, cleaned)
	}
}

func TestAbortEndsAllRanks(t *testing.T) {
	after := false
	out, err := InWorld(Fabric{Ranks: 3}, func(e *transport.Env) error {
		if e.Rank == 1 {
			e.Go("aborts", func(p verbs.Proc) {
				p.Sleep(time.Millisecond)
				e.Control.Abort(7, "test")
				after = true
			})
		}
		e.Proc.Sleep(time.Hour)
		return nil
	})
	var abort *AbortError
	if !errors.As(err, &abort) || *abort != (AbortError{Rank: 1, Code: 7, Reason: "test"}) || out.Aborted == nil || after {
		t.Errorf("%v, continued after Abort: %v", err, after)
	}
	for i, r := range out.Ranks {
		if !r.Killed || r.Ended != time.Millisecond {
			t.Errorf("rank %d: %+v", i, r)
		}
	}
}

func TestSegmentsAreSharedWithinHost(t *testing.T) {
	_, err := InWorld(Fabric{Ranks: 4, PerHost: 2}, func(e *transport.Env) error {
		mem, err := e.Shared.Segment("shared", 100)
		if err != nil {
			return err
		}
		mem[e.Rank%2]++
		if err := e.Control.Barrier(verbs.Forever); err != nil {
			return err
		}
		if mem[0] != 1 || mem[1] != 1 {
			return fmt.Errorf("the segment holds %v", mem[:2])
		}
		if _, err := e.Shared.Segment("shared", 101); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("another size: %v", err)
		}
		if _, err := e.Shared.Segment("none", 0); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("no size: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
