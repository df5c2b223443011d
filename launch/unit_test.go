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
)

// fullDisk takes so many bytes and no more.
type fullDisk struct {
	bytes.Buffer
	room int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(d.room, len(b))
	d.room -= n
	d.Buffer.Write(b[:n])
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (d *fullDisk) Close() error { return nil }

func TestFullDiskIsToldAndStopsNobody(t *testing.T) {
	disk := &fullDisk{room: 10}
	k := &sink{limit: 1000, tail: tail{size: 4}, log: func() (io.WriteCloser, error) { return disk, nil }}
	k.drain(strings.NewReader("0123456789abcdef"))
	out := k.result()
	if out.Bytes != 16 || out.Dropped != 6 || out.Tail != "cdef" || !strings.Contains(out.Error, "no space left") {
		t.Errorf("%+v", out)
	}
	if disk.String() != "0123456789" {
		t.Errorf("log %q", disk.String())
	}
	unopened := &sink{limit: 1000, tail: tail{size: 4}, log: func() (io.WriteCloser, error) { return nil, os.ErrPermission }}
	unopened.drain(strings.NewReader("ab"))
	if out := unopened.result(); out.Bytes != 2 || out.Error == "" {
		t.Errorf("%+v", out)
	}
}

func TestLinesAreWholeOrBroken(t *testing.T) {
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
				continue // a newline just after the longest line makes an empty one
			}
			var got []string
			k := &sink{limit: 1 << 20, tail: tail{size: 4}, line: func(l string) { got = append(got, l) }}
			for b := []byte(tt.in); len(b) > 0; {
				n := min(step, len(b))
				k.take(b[:n])
				b = b[n:]
			}
			k.close()
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%.20q by %d: %d lines %.60q", tt.in, step, len(got), got)
			}
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
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
		t.Errorf("100 bytes take %d", cap(k.buf))
	}
}

func TestPanicIsFoundWhereverItStands(t *testing.T) {
	text := "hello\npanic: one\n\ngoroutine 1 [running]:\npanic: two\n"
	early := &sink{limit: 1 << 20, tail: tail{size: 12}}
	early.take([]byte(text))
	late := &sink{limit: 0, tail: tail{size: 1 << 10}}
	late.take([]byte(text))
	none := &sink{limit: 1 << 20, tail: tail{size: 1 << 10}}
	none.take([]byte("do not panic: all is well\n"))
	if early.panicked() != "panic: one" || late.panicked() != "panic: one" || none.panicked() != "" {
		t.Errorf("%q, %q, %q", early.panicked(), late.panicked(), none.panicked())
	}
}

func TestEveryEndIsJudged(t *testing.T) {
	exit := func(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }
	by := func(s syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(s) }
	tests := []struct {
		name string
		e    ending
		want State
	}{
		{"done", ending{mustJoin: true, joined: true, bye: true, status: exit(0)}, Finished},
		{"done while stopped", ending{mustJoin: true, joined: true, bye: true, stopped: true, status: exit(0)}, Finished},
		{"done, then another code", ending{mustJoin: true, joined: true, bye: true, status: exit(4)}, Exited},
		{"failed and exit 0", ending{joined: true, bye: true, byeReason: "x", status: exit(0)}, Failed},
		{"failed while stopped", ending{joined: true, bye: true, byeReason: "x", stopped: true, status: exit(1)}, Failed},
		{"no word", ending{mustJoin: true, joined: true, status: exit(0)}, Exited},
		{"no word, but may", ending{joined: true, status: exit(0)}, Exited},
		{"never joined", ending{mustJoin: true, status: exit(0)}, Exited},
		{"never joined, but may", ending{status: exit(0)}, Finished},
		{"any program's code", ending{status: exit(1)}, Exited},
		{"panic", ending{joined: true, panicLine: "panic: x", status: exit(2)}, Crashed},
		{"usage", ending{status: exit(2)}, Exited},
		{"killed", ending{killed: true, status: by(syscall.SIGKILL)}, Killed},
		{"killed too late", ending{killed: true, joined: true, bye: true, status: exit(0)}, Finished},
		{"killed while crashing", ending{killed: true, status: by(syscall.SIGSEGV)}, Crashed},
		{"killed by others", ending{status: by(syscall.SIGKILL)}, Crashed},
		{"stopped", ending{stopped: true, status: by(syscall.SIGTERM)}, Stopped},
		{"stopped the hard way", ending{stopped: true, status: by(syscall.SIGKILL)}, Stopped},
		{"stopped in order", ending{stopped: true, joined: true, status: exit(143)}, Stopped},
		{"crashed while stopped", ending{stopped: true, status: by(syscall.SIGSEGV)}, Crashed},
		{"hung", ending{verdict: Hung, stopped: true, status: by(syscall.SIGKILL)}, Hung},
	}
	for _, tt := range tests {
		s, why := tt.e.judge()
		if s != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, s, why, tt.want)
		}
		if (why == "") != s.OK() && tt.e.verdict == "" {
			t.Errorf("%s: %s because %q", tt.name, s, why)
		}
	}
}

func TestRankErrorNamesRankAndHost(t *testing.T) {
	var err error = &RankError{Rank: 3, Host: "host3", State: Hung, Text: "gave no sign"}
	if err.Error() != "rank 3 (host3) hung: gave no sign" {
		t.Error(err)
	}
	var re *RankError
	if !errors.As(fmt.Errorf("run: %w", err), &re) || re.Rank != 3 {
		t.Error("cannot be unwrapped")
	}
}

// What cannot be done to a rank any more must not be on record as done.
func TestEndedRankIsNeitherKilledNorFrozen(t *testing.T) {
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
