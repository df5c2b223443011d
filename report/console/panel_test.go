package console

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// locked is a log that somebody reads while it is written.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Without a terminal a long run still says, now and then, how far it is.
func TestLogsShowProgress(t *testing.T) {
	defer func(was time.Duration) { logTick = was }(logTick)
	logTick = time.Millisecond
	var log locked
	d := NewVerdicts(Config{Out: new(bytes.Buffer), Status: &log, Total: 7}, false)
	d.Start("rc/psn/one")
	want := regexp.MustCompile(`(?m)^0 of 7 done, 0:\d\d: rc/psn/one$`)
	for range 20_000 {
		if want.MatchString(log.String()) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	d.Close()
	if !want.MatchString(log.String()) {
		t.Errorf("no progress in %q", log.String())
	}
	if strings.ContainsAny(log.String(), "\r\x1b") {
		t.Errorf("a log is not a terminal: %q", log.String())
	}
	quiet := locked{}
	d = NewVerdicts(Config{Out: new(bytes.Buffer), Status: &quiet, Quiet: true}, false)
	time.Sleep(5 * time.Millisecond)
	d.Close()
	if quiet.String() != "" {
		t.Errorf("asked to be quiet, it said %q", quiet.String())
	}
}
