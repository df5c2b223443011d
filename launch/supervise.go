package launch

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// heartbeat is the liveness state of a rank.
type heartbeat struct {
	lastHeard     time.Time
	handlingFrame bool // while the launcher handles a frame, the rank is not silent
	seq           uint64
	pending       bool // ping seq has not been answered

	joinStart      time.Time // start of the join timeout
	disconnectedAt time.Time // start of the exit timeout
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
		// itself was stopped or starved of CPU.
		late := now.Sub(lastTick) - period
		if late < period {
			late = 0 // a ticker may be a little late
		}
		lastTick = now
		measure := now.Sub(lastMeasured) >= rssInterval
		if measure {
			lastMeasured = now
		}
		for _, m := range g.members {
			m.supervise(now, late)
			if measure {
				m.updatePeakRSS()
			}
		}
	}
}

// supervise sends a heartbeat to the rank and checks its timeouts, which are extended
// by late, the time that the launcher did not run.
func (m *member) supervise(now time.Time, late time.Duration) {
	g := m.g
	g.mu.Lock()
	hb := &m.heartbeat
	for _, start := range []*time.Time{&hb.lastHeard, &hb.joinStart, &hb.disconnectedAt} {
		*start = start.Add(late)
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
			state, why = Failed, fmt.Sprintf("did not join within %v: does the program call Join?", g.opts.JoinTimeout)
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
