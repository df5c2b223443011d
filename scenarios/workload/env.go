package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// env is what the program of a rank needs, of whatever kind: configuration, time, and the
// record of what happened.
type env struct {
	rank   *Rank
	cfg    Config
	proc   verbs.Proc
	traits traffic.TransportTraits
	log    *eventLog
	live   liveState

	now          time.Duration // of the current step
	lastProgress time.Duration
	nextTimer    time.Duration // 0: none
}

// Intervals at which a rank polls notes, and waits for completions.
const (
	simTick  = 100 * time.Microsecond
	realTick = time.Millisecond
	maxTicks = 32 // longest wait
)

// Time for packets under way to arrive.
const (
	simGrace  = 5 * time.Millisecond
	realGrace = 100 * time.Millisecond
)

// host is the name of the rank's host.
func (e *env) host() string { return hostOf(e.rank.Rank) }

func (e *env) tick() time.Duration {
	if e.rank.Concurrent {
		return realTick
	}
	return simTick
}

func (e *env) grace() time.Duration {
	if e.rank.Concurrent {
		return realGrace
	}
	return simGrace
}

// due reports whether a time has come. If not, it arms the timer, which schedules all
// connections. The timer keeps the earliest time only, therefore later ones must call due
// again when they are scheduled.
func (e *env) due(at time.Duration) bool {
	if e.now >= at {
		return true
	}
	if e.nextTimer == 0 || at < e.nextTimer {
		e.nextTimer = at
	}
	return false
}

// noteProgress notes that something happened now.
func (e *env) noteProgress() {
	e.now = e.proc.Now()
	e.lastProgress = e.now
}

// pollBackoff is the length of a wait that no event ends. It grows with the idle time.
func (e *env) pollBackoff() time.Duration { return (e.now - e.lastProgress) / 8 }

// think computes for the configured time.
func (e *env) think() {
	e.proc.Compute(e.cfg.Think)
	e.now = e.proc.Now()
}

// pair returns the partner of this rank in a workload of pairs, and the NIC of this rank that
// it uses. Ranks 2i and 2i+1 are partners; the last of an odd number of ranks has none (-1).
func (e *env) pair() (peer int, nic *NIC) {
	r := e.rank
	if peer = r.Rank ^ 1; peer >= e.cfg.Ranks || r.Rank >= e.cfg.Ranks {
		peer = -1
	}
	return peer, &r.NICs[r.Rank/2%len(r.NICs)]
}

// Status returns the status published before the last wait.
func (e *env) Status() string { return e.live.status() }

// Break moves the rank's queue pairs to the error state.
func (e *env) Break() error { return e.live.breakAll() }
