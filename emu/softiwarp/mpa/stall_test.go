package mpa

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// at gives c octets at a time.
func at(c *Conn, now mono.Time, b []byte) []Event {
	c.Input(now, b)
	return drain(c)
}

// An FPDU whose length was damaged claims more than will come. Without a limit it
// is waited for; with one, as long as nothing comes.
func TestFPDUThatDoesNotGoOn(t *testing.T) {
	const limit = 3 * time.Second
	good := stream(crcOn, pattern(18, 0))
	longer := append([]byte(nil), good...)
	longer[0] |= 1 // 256 octets more

	c := responding(t, Config{}, crcOn, crcOn)
	if es := at(c, 0, longer); len(es) > 0 || c.Deadline() != mono.Never {
		t.Errorf("without a limit: %+v, deadline %v", es, c.Deadline())
	}
	c = responding(t, Config{FPDUTimeout: -1}, crcOn, crcOn)
	if at(c, 0, longer); c.Deadline() != mono.Never {
		t.Errorf("a limit below 0 has a deadline at %v", c.Deadline())
	}

	c = responding(t, Config{FPDUTimeout: limit}, crcOn, crcOn)
	if c.Deadline() != mono.Never {
		t.Errorf("nothing has come, and there is a deadline at %v", c.Deadline())
	}
	wantULPDU(t, one(t, at(c, 1, good)), pattern(18, 0))
	if c.Deadline() != mono.Never {
		t.Errorf("between FPDUs there is a deadline at %v", c.Deadline())
	}
	at(c, 10, good[:1])
	if want := mono.Time(10).Add(limit); c.Deadline() != want {
		t.Errorf("an FPDU has begun: deadline %v, want %v", c.Deadline(), want)
	}
	at(c, 20, good[1:9])
	if want := mono.Time(20).Add(limit); c.Deadline() != want {
		t.Errorf("it has gone on: deadline %v, want %v", c.Deadline(), want)
	}
	wantULPDU(t, one(t, at(c, 30, good[9:])), pattern(18, 0))
	if c.Deadline() != mono.Never {
		t.Errorf("it is whole, and there is a deadline at %v", c.Deadline())
	}

	at(c, 40, longer)
	c.Tick(c.Deadline() - 1)
	if es := drain(c); len(es) > 0 || !c.MaySend() {
		t.Errorf("before its time: %+v", es)
	}
	c.Tick(c.Deadline())
	failsWith(t, one(t, drain(c)), wire.TermMPAClosed, ErrStalledFPDU)
	if c.Deadline() != mono.Never || !c.MaySend() {
		t.Errorf("deadline %v, may send %v", c.Deadline(), c.MaySend())
	}
}

// What comes with the deadline counts: who ticks first must not matter.
func TestFPDUThatGoesOnAtTheLastMoment(t *testing.T) {
	good := stream(crcOn, pattern(18, 0))
	c := responding(t, Config{FPDUTimeout: time.Second}, crcOn, crcOn)
	at(c, 0, good[:5])
	c.Tick(c.Deadline())
	wantULPDU(t, one(t, at(c, mono.Time(time.Second), good[5:])), pattern(18, 0))
	if es := drain(c); len(es) > 0 {
		t.Errorf("%+v", es)
	}
}
