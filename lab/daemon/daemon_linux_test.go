package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
)

// panicking is a lab that panics at every request.
type panicking struct{}

func (panicking) Handle(*Client, *struct{}) error { panic("test panic") }
func (panicking) Close() error                    { return nil }

func TestServerSurvivesPanicInHandler(t *testing.T) {
	k := &Kind{What: "lab", Prefix: "daemon-panic", Version: 1, ReplyTimeout: time.Minute, RequestTimeout: time.Minute}
	name := fmt.Sprint(os.Getpid())
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: k.Socket(name), Net: "unix"}))(t)
	var log bytes.Buffer
	s := &server[struct{}]{kind: k, lab: panicking{}, listener: l, crashLog: "/some/file", log: &log}
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	for range maxLoggedPanics + 2 {
		_, _, err := k.RoundTrip(t.Context(), name, k.ReplyTimeout, struct{}{})
		var failed *control.CloseError
		if !errors.As(err, &failed) || !strings.Contains(failed.Reason, "test panic") || !strings.Contains(failed.Reason, "/some/file") {
			t.Error(err)
		}
	}
	s.stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "panic: test panic"); n != maxLoggedPanics {
		t.Errorf("%d stack traces were logged, want %d", n, maxLoggedPanics)
	}
}
