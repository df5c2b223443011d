package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// limitedFile is a file on a disk with room for a limited number of bytes.
type limitedFile struct {
	bytes.Buffer
	room int
}

func (d *limitedFile) Write(b []byte) (int, error) {
	n := min(d.room, len(b))
	d.room -= n
	d.Buffer.Write(b[:n])
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (d *limitedFile) Close() error { return nil }

func TestFullDiskIsReportedAndReadingContinues(t *testing.T) {
	disk := &limitedFile{room: 10}
	k := &outputReader{limit: 1000, tail: tail{size: 4}, openLog: func() (io.WriteCloser, error) { return disk, nil }}
	k.drain(strings.NewReader("0123456789abcdef"))
	out := k.snapshot()
	if out.Bytes != 16 || out.Dropped != 6 || out.Tail != "cdef" || !strings.Contains(out.Error, "no space left") {
		t.Errorf("%+v", out)
	}
	if disk.String() != "0123456789" {
		t.Errorf("log %q", disk.String())
	}
	unopened := &outputReader{limit: 1000, tail: tail{size: 4}, openLog: func() (io.WriteCloser, error) { return nil, os.ErrPermission }}
	unopened.drain(strings.NewReader("ab"))
	if out := unopened.snapshot(); out.Bytes != 2 || out.Error == "" {
		t.Errorf("%+v", out)
	}
}

func TestLinesAreSplitAtNewlineOrMaxLine(t *testing.T) {
	long := strings.Repeat("z", maxLine)
	tests := []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"a\nb\r\n\nc", []string{"a", "b", "", "c"}},
		{long + "\nb", []string{long, "b"}},
		{long + long + "q\n", []string{long, long, "q"}},
	}
	for _, tt := range tests {
		for _, step := range []int{1, 7, 64 << 10} {
			if len(tt.in) > 100 && step == 1 {
				continue // a newline right after maxLine bytes yields an empty line
			}
			var got []string
			k := &outputReader{limit: 1 << 20, tail: tail{size: 4}, onLine: func(l string) { got = append(got, l) }}
			for b := []byte(tt.in); len(b) > 0; {
				n := min(step, len(b))
				k.consume(b[:n])
				b = b[n:]
			}
			k.close()
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%.20q by %d: %d lines %.60q", tt.in, step, len(got), got)
			}
		}
	}
}

func TestTailKeepsLastBytes(t *testing.T) {
	var all []byte
	k := tail{size: 100}
	for i := range 500 {
		b := bytes.Repeat([]byte{byte(i)}, i%230)
		all = append(all, b...)
		k.add(b)
		if want := all[max(0, len(all)-100):]; !bytes.Equal(k.bytes(), want) {
			t.Fatalf("after %d pieces: %x, want %x", i, k.bytes(), want)
		}
	}
	if cap(k.buf) > 1000 {
		t.Errorf("a tail of 100 bytes uses %d", cap(k.buf))
	}
}

func TestFindPanicSearchesLinesAndTail(t *testing.T) {
	text := "hello\npanic: one\n\ngoroutine 1 [running]:\npanic: two\n"
	early := &outputReader{limit: 1 << 20, tail: tail{size: 12}}
	early.consume([]byte(text))
	late := &outputReader{limit: 0, tail: tail{size: 1 << 10}}
	late.consume([]byte(text))
	none := &outputReader{limit: 1 << 20, tail: tail{size: 1 << 10}}
	none.consume([]byte("do not panic: all is well\n"))
	if early.findPanic() != "panic: one" || late.findPanic() != "panic: one" || none.findPanic() != "" {
		t.Errorf("%q, %q, %q", early.findPanic(), late.findPanic(), none.findPanic())
	}
}

func TestClassify(t *testing.T) {
	exit := func(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }
	by := func(s syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(s) }
	tests := []struct {
		name string
		e    exitInfo
		want State
	}{
		{"done", exitInfo{mustJoin: true, joined: true, byeReceived: true, status: exit(0)}, Finished},
		{"done while stopped", exitInfo{mustJoin: true, joined: true, byeReceived: true, stopping: true, status: exit(0)}, Finished},
		{"done, then another code", exitInfo{mustJoin: true, joined: true, byeReceived: true, status: exit(4)}, Exited},
		{"failed and exit 0", exitInfo{joined: true, byeReceived: true, byeReason: "x", status: exit(0)}, Failed},
		{"failed while stopped", exitInfo{joined: true, byeReceived: true, byeReason: "x", stopping: true, status: exit(1)}, Failed},
		{"exit without Close", exitInfo{mustJoin: true, joined: true, status: exit(0)}, Exited},
		{"exit without Close, join optional", exitInfo{joined: true, status: exit(0)}, Exited},
		{"never joined", exitInfo{mustJoin: true, status: exit(0)}, Exited},
		{"never joined, join optional", exitInfo{status: exit(0)}, Finished},
		{"exit code of any program", exitInfo{status: exit(1)}, Exited},
		{"panic", exitInfo{joined: true, panicLine: "panic: x", status: exit(2)}, Crashed},
		{"exit code 2 without a panic", exitInfo{status: exit(2)}, Exited},
		{"killed", exitInfo{killed: true, status: by(syscall.SIGKILL)}, Killed},
		{"killed too late", exitInfo{killed: true, joined: true, byeReceived: true, status: exit(0)}, Finished},
		{"killed while crashing", exitInfo{killed: true, status: by(syscall.SIGSEGV)}, Crashed},
		{"killed by others", exitInfo{status: by(syscall.SIGKILL)}, Crashed},
		{"stopped", exitInfo{stopping: true, status: by(syscall.SIGTERM)}, Stopped},
		{"stopped by SIGKILL", exitInfo{stopping: true, status: by(syscall.SIGKILL)}, Stopped},
		{"stopped, exit 143", exitInfo{stopping: true, joined: true, status: exit(143)}, Stopped},
		{"crashed while stopped", exitInfo{stopping: true, status: by(syscall.SIGSEGV)}, Crashed},
		{"hung", exitInfo{failState: Hung, stopping: true, status: by(syscall.SIGKILL)}, Hung},
	}
	for _, tt := range tests {
		s, why := tt.e.classify()
		if s != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, s, why, tt.want)
		}
		if (why == "") != s.OK() && tt.e.failState == "" {
			t.Errorf("%s: %s because %q", tt.name, s, why)
		}
	}
}

// A rank of which a thread waits for a CPU in 80 % of the time becomes Hung when it had
// hangTimeout without that, and at the latest after the longest extension.
func TestStarvedRankHasMoreTime(t *testing.T) {
	const tick, hangTimeout = 100 * time.Millisecond, time.Second
	begin := time.Unix(0, 0)
	for share, want := range map[float64]time.Duration{0: hangTimeout, 0.8: hangTimeout/2 + hangTimeout/2*5, 3: hangTimeout + maxExtension*hangTimeout} {
		hb := heartbeat{lastHeard: begin}
		now, queued := begin, time.Minute // in run queues before
		for now.Sub(hb.lastHeard) <= hangTimeout {
			now = now.Add(tick)
			queued += time.Duration(share * float64(tick))
			hb.extendWhileStarved(now.Sub(hb.lastHeard), tick, hangTimeout, func() (time.Duration, bool) { return queued, true })
		}
		if hung := now.Sub(begin); hung < want || hung > want+3*tick {
			t.Errorf("starved %v of the time: hung after %v, want %v", share, hung, want)
		}
		if hb.extendWhileStarved(0, tick, hangTimeout, nil); hb.extension != 0 {
			t.Error("a rank that has answered keeps its extension")
		}
	}
}

func TestRankErrorContainsRankAndHost(t *testing.T) {
	var err error = &RankError{Rank: 3, Host: "host3", State: Hung, Text: "no heartbeat"}
	if err.Error() != "rank 3 (host3) hung: no heartbeat" {
		t.Error(err)
	}
	var re *RankError
	if !errors.As(fmt.Errorf("run: %w", err), &re) || re.Rank != 3 {
		t.Error("cannot be unwrapped")
	}
}

func TestEndedRankCannotBeKilledOrFrozen(t *testing.T) {
	g := &Group{}
	m := &member{g: g, proc: &process{reaped: true}}
	g.members = []*member{m}
	for what, do := range map[string]func(int) error{"kill": g.Kill, "freeze": g.Freeze, "thaw": g.Thaw} {
		if err := do(0); !errors.Is(err, ErrEnded) {
			t.Errorf("%s: %v, want ErrEnded", what, err)
		}
		if m.killed || m.frozen {
			t.Errorf("after %s: killed %v, frozen %v", what, m.killed, m.frozen)
		}
	}
}

// A request that cannot be queued, because the channel is closing, is not one of the pending calls.
func TestUnqueuedRequestIsForgotten(t *testing.T) {
	conn := control.New(nil, control.Config{})
	conn.CloseQueue()
	m := &member{g: new(Group), proc: new(process), channel: channel{conn: conn}}
	m.joined = true
	if _, err := m.request(t.Context(), control.Frame{Kind: kindCommand}); !errors.Is(err, ErrEnded) {
		t.Errorf("a request on a closed queue returned %v", err)
	}
	if _, err := m.calls.Begin(1, func([]byte, bool) {}); err != nil {
		t.Errorf("the request is still pending: %v", err)
	}
}
