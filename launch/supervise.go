package launch

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/control"
	proc "github.com/fabrictest/fabrictest/internal/process"
)

// heartbeat is the liveness state of a rank.
type heartbeat struct {
	lastHeard     time.Time
	handlingFrame bool // while the launcher handles a frame, the rank is not silent
	seq           uint64
	pending       bool // ping seq has not been answered

	joinStart      time.Time // start of the join timeout
	disconnectedAt time.Time // start of the exit timeout

	queued    time.Duration // time of the rank's threads in run queues, when it was last read
	extension time.Duration // by which the timeouts were extended since, because of that time
}

// maxExtension is the most by which a busy machine extends the timeouts of a rank, in HangTimeouts:
// a rank whose threads compete with each other for ever must become Hung in the end.
const maxExtension = 5

// extendWhileStarved extends the timeouts of a rank by the part of the last tick in which its threads
// waited for a CPU. elapsed is the time since the start of its current timeout. queued reads the time
// that the threads have spent in run queues since they began; it is called only after half of
// hangTimeout, because a rank that answers is not starved.
func (hb *heartbeat) extendWhileStarved(elapsed, tick, hangTimeout time.Duration, queued func() (time.Duration, bool)) {
	if elapsed < hangTimeout/2 {
		hb.queued, hb.extension = 0, 0
		return
	}
	total, ok := queued()
	if !ok {
		return
	}
	if hb.queued > 0 && hb.extension < maxExtension*hangTimeout {
		starved := min(max(total-hb.queued, 0), tick)
		hb.extension += starved
		hb.extend(starved)
	}
	hb.queued = total
}

// extend extends the timeouts of a rank by d.
func (hb *heartbeat) extend(d time.Duration) {
	for _, start := range []*time.Time{&hb.lastHeard, &hb.joinStart, &hb.disconnectedAt} {
		*start = start.Add(d)
	}
}

// setHandlingFrame records that the launcher begins or ends to handle a frame of the rank. In
// between, the rank is not silent: a full queue or OnEvent may block the launcher.
func (m *member) setHandlingFrame(handling bool) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.heartbeat.lastHeard, m.heartbeat.handlingFrame = time.Now(), handling
}

// handlePong handles the answer to a ping. The number must match: otherwise a rank
// could appear alive without reading.
func (m *member) handlePong(n uint64) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if !m.heartbeat.pending || n != m.heartbeat.seq {
		return fmt.Errorf("%w: pong %d without a ping", control.ErrProtocol, n)
	}
	m.heartbeat.pending = false
	return nil
}

const (
	maxCheckInterval = 500 * time.Millisecond // of timeouts
	rssInterval      = time.Second            // of reading the peak RSS
)

// supervise sends heartbeats, checks timeouts and samples the memory of ranks until quit is closed.
func (g *Group) supervise(quit <-chan struct{}) {
	period := maxCheckInterval
	if g.opts.Heartbeat > 0 {
		period = min(period, g.opts.Heartbeat)
	}
	period = min(period, g.opts.HangTimeout/2, g.opts.JoinTimeout/2)
	ticker := time.NewTicker(max(period, time.Millisecond))
	defer ticker.Stop()
	lastTick, lastMeasured := time.Now(), time.Now()
	for {
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
		now := time.Now()
		// The timeouts of the ranks are extended by the time during which the launcher
		// itself did not run, after SIGSTOP or without CPU time.
		tick := now.Sub(lastTick)
		late := tick - period
		if late < period {
			late = 0 // a ticker may be a little late
		}
		lastTick = now
		measure := now.Sub(lastMeasured) >= rssInterval
		if measure {
			lastMeasured = now
		}
		for _, m := range g.members {
			m.supervise(now, tick, late)
			if measure {
				m.updatePeakRSS()
			}
		}
	}
}

// supervise sends a heartbeat to the rank and checks its timeouts. They are extended by late, the
// part of the last tick in which the launcher did not run, or by the time in which the rank was
// starved of CPU.
func (m *member) supervise(now time.Time, tick, late time.Duration) {
	g := m.g
	g.mu.Lock()
	hb := &m.heartbeat
	if late > 0 {
		hb.extend(late)
	} else {
		hb.extendWhileStarved(now.Sub(m.timeoutStart()), tick, g.opts.HangTimeout, m.queuedTime)
	}
	var state State
	var why string
	switch {
	case m.failState != "" || m.stopping || m.frozen || m.killed: // it has no timeouts
	case m.disconnected:
		elapsed := now.Sub(hb.disconnectedAt)
		switch {
		case elapsed <= g.opts.HangTimeout || m.proc.exited():
		case !m.joined && g.opts.Join == JoinOptional: // such a program may close the channel
		case m.byeReceived:
			state, why = Hung, fmt.Sprintf("called Close and did not exit for %v", elapsed.Round(time.Millisecond))
		default:
			state, why = Failed, fmt.Sprintf("closed its control channel without Close and did not exit for %v", elapsed.Round(time.Millisecond))
		}
	case !m.joined:
		if g.opts.Join == JoinRequired && now.Sub(hb.joinStart) > g.opts.JoinTimeout {
			state, why = Failed, fmt.Sprintf("did not join within %v", g.opts.JoinTimeout)
			if !m.spec.isProxy() {
				why += ": does the program call Join?"
			}
		}
	case g.opts.Heartbeat <= 0 || hb.handlingFrame: // it cannot be silent
	case now.Sub(hb.lastHeard) > g.opts.HangTimeout:
		state, why = Hung, fmt.Sprintf("did not answer heartbeats for %v", now.Sub(hb.lastHeard).Round(time.Millisecond))
	case !hb.pending:
		hb.seq++
		hb.pending = true
		_ = m.conn.QueueNow(control.Frame{Kind: control.Ping, Num: hb.seq})
	}
	g.mu.Unlock()
	if state != "" {
		m.goTask(func() { m.fail(state, why) })
	}
}

// timeoutStart returns the start of the current timeout of the rank.
func (m *member) timeoutStart() time.Time {
	switch {
	case m.disconnected:
		return m.heartbeat.disconnectedAt
	case !m.joined:
		return m.heartbeat.joinStart
	default:
		return m.heartbeat.lastHeard
	}
}

// queuedTime returns the time for which the threads of the rank have waited for a CPU.
func (m *member) queuedTime() (time.Duration, bool) {
	used, ok := proc.UsedCPUOf(m.proc.pid)
	return used.Waited, ok
}

// updatePeakRSS reads the peak RSS of a running rank.
func (m *member) updatePeakRSS() {
	if m.proc.exited() {
		return
	}
	if peak, ok := readPeakRSS(m.proc.pid); ok {
		m.g.mu.Lock()
		m.outcome.MaxRSS = max(m.outcome.MaxRSS, peak)
		m.g.mu.Unlock()
	}
}
