package drive

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestPollerHasOneHolder(t *testing.T) {
	p := newPoller(1)
	if !p.tryAcquire() || p.tryAcquire() {
		t.Fatal("the poller has two holders, or none can acquire it")
	}
	p.release()
	if !p.tryAcquire() {
		t.Error("a released poller cannot be acquired")
	}
}

func TestPollerSleepTime(t *testing.T) {
	now := mono.Time(time.Hour)
	for _, c := range []struct {
		name      string
		lastEvent mono.Time
		deadline  mono.Time
		want      time.Duration
	}{
		{"until the deadline", now, now.Add(time.Millisecond), time.Millisecond},
		{"not into the past", now, now.Add(-time.Millisecond), 0},
		{"bounded while there is traffic", now, now.Add(time.Minute), maxPollSleep},
		{"bounded until quietAfter has passed", now.Add(1 - quietAfter), now.Add(time.Minute), maxPollSleep},
		{"unbounded without traffic", now.Add(-quietAfter), now.Add(time.Minute), time.Minute},
		{"for ever without traffic and deadline", now.Add(-quietAfter), mono.Never, mono.Never.Sub(now)},
	} {
		p := poller{lastEvent: c.lastEvent}
		if got := p.sleepTime(now, c.deadline); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPollerOversleeps(t *testing.T) {
	for _, c := range []struct {
		name     string
		held     bool
		wakeAt   mono.Time
		deadline mono.Time
		want     bool
	}{
		{"wakes after the deadline", true, 20, 10, true},
		{"wakes at the deadline", true, 10, 10, false},
		{"wakes before the deadline", true, 10, 20, false},
		{"is awake", true, 0, 10, false},
		{"does not exist", false, 20, 10, false},
	} {
		p := newPoller(1)
		if c.held {
			p.tryAcquire()
		}
		p.wakeAt = c.wakeAt
		if got := p.oversleeps(c.deadline); got != c.want {
			t.Errorf("the holder %s: oversleeps %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPollerKnowsActiveApplications(t *testing.T) {
	p := newPoller(mono.Time(time.Second))
	if p.appActive(mono.Time(time.Second)) {
		t.Error("an application is active before any has polled")
	}
	p.lastPoll = mono.Time(time.Second)
	if !p.appActive(p.lastPoll.Add(appIdle-1)) || p.appActive(p.lastPoll.Add(appIdle)) {
		t.Errorf("an application is not active for %v after its poll", appIdle)
	}
}
