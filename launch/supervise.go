package launch

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// silence is how long a rank has given no sign of life.
type silence struct {
	since time.Time
	busy  bool // a frame of its is being handled: the launcher is late, not the rank
	ping  uint64
	asked bool // the ping has not been answered
}

func (s *silence) handling(now time.Time) { s.since, s.busy = now, true }
func (s *silence) heard(now time.Time)    { s.since, s.busy = now, false }

// pong takes the answer to a heart-beat. It must be the one that was asked for:
// otherwise a rank could look alive without reading.
func (m *member) pong(n uint64) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if !m.silence.asked || n != m.silence.ping {
		return fmt.Errorf("%w: pong %d, which was not asked for", control.ErrProtocol, n)
	}
	m.silence.asked = false
	return nil
}

const (
	// tick is how often deadlines are looked at where heart-beats are rarer.
	tick = 500 * time.Millisecond
	// memoryEvery is how often the memory of each rank is read.
	memoryEvery = time.Second
)

// supervise asks for signs of life and looks at deadlines until quit closes.
func (g *Group) supervise(quit <-chan struct{}) {
	period := tick
	if g.opts.Heartbeat > 0 {
		period = min(period, g.opts.Heartbeat)
	}
	period = min(period, g.opts.HangTimeout/2, g.opts.JoinTimeout/2)
	ticker := time.NewTicker(max(period, time.Millisecond))
	defer ticker.Stop()
	last, measured := time.Now(), time.Now()
	for {
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
		now := time.Now()
		// If this process was itself stopped or starved, it has heard nobody for
		// reasons of its own.
		late := now.Sub(last) - period
		if late < period {
			late = 0
		}
		last = now
		measure := now.Sub(measured) >= memoryEvery
		if measure {
			measured = now
		}
		for _, m := range g.members {
			m.supervise(now, late)
			if measure {
				m.measure()
			}
		}
	}
}

// supervise looks after one rank at a time of the clock; late is how much of the
// time since the last look the launcher slept through.
func (m *member) supervise(now time.Time, late time.Duration) {
	g := m.g
	g.mu.Lock()
	m.silence.since = m.silence.since.Add(late)
	m.joinFrom = m.joinFrom.Add(late)
	m.leftAt = m.leftAt.Add(late)
	s := &m.silence
	beats := g.opts.Heartbeat > 0
	var state State
	var why string
	switch {
	case m.verdict != "" || m.stopping || m.frozen || m.killed:
	case m.gone:
		if gone := now.Sub(m.leftAt); gone > g.opts.HangTimeout && !m.proc.over() {
			state, why = Hung, fmt.Sprintf("said that it was done, and did not exit for %v", gone.Round(time.Millisecond))
			if !m.bye {
				state, why = Failed, fmt.Sprintf("closed its control channel without a word, and went on for %v", gone.Round(time.Millisecond))
			}
			if !m.joined && g.opts.Join == JoinOptional {
				state = "" // it has no use for the channel, and may close it
			}
		}
	case !m.joined:
		if g.opts.Join == JoinRequired && now.Sub(m.joinFrom) > g.opts.JoinTimeout {
			state, why = Failed, fmt.Sprintf("did not join within %v: does the program call rank.Join?", g.opts.JoinTimeout)
		}
	case !beats || s.busy:
	case now.Sub(s.since) > g.opts.HangTimeout:
		state, why = Hung, fmt.Sprintf("gave no sign of life for %v", now.Sub(s.since).Round(time.Millisecond))
	case !s.asked:
		s.ping++
		s.asked = true
		_ = m.outbox.PutUnbounded(control.Frame{Kind: control.Ping, Num: s.ping})
	}
	g.mu.Unlock()
	if state != "" {
		m.errand(func() { m.fail(state, why) })
	}
}

// measure notes how much memory the rank has had so far.
func (m *member) measure() {
	if m.proc.over() {
		return
	}
	if peak, ok := peakRSS(m.proc.pid); ok {
		m.g.mu.Lock()
		m.peak = max(m.peak, peak)
		m.g.mu.Unlock()
	}
}
