package kernel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
)

// serve starts a server, and returns a function that connects to it.
func serve(t *testing.T, s *GuestServer) func() net.Conn {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func() net.Conn {
		t.Helper()
		conn := must.Get(net.Dial("tcp", l.Addr().String()))(t)
		return conn
	}
}

func TestExec(t *testing.T) {
	t.Parallel() // a child keeps the outputs open until a timeout
	dial := serve(t, &GuestServer{})
	for _, c := range []struct {
		command   Command
		out, errs string
		code      int
	}{
		{Shell("echo one; echo two >&2; exit 7"), "one\n", "two\n", 7},
		{Shell("kill -9 $$"), "", "", 128 + 9},
		{Command{Args: []string{"tr", "a-z", "A-Z"}, Stdin: strings.NewReader("input")}, "INPUT", "", 0},
		{Command{Args: []string{"true"}, Stdin: bytes.NewReader(make([]byte, 1<<20))}, "", "", 0}, // does not read its input
		{Shell("head -c 1000000 /dev/zero | tr '\\0' x"), strings.Repeat("x", 1000000), "", 0},
		{Shell("sleep 100 & echo started"), "started\n", "", 0}, // the child keeps the outputs open
	} {
		var out, errs bytes.Buffer
		c.command.Stdout, c.command.Stderr = &out, &errs
		code, err := Exec(t.Context(), dial(), c.command)
		if err != nil || code != c.code || out.String() != c.out || errs.String() != c.errs {
			t.Errorf("%v: code %d, %v, out %.100q, errors %.100q", c.command.Args, code, err, out.String(), errs.String())
		}
	}
	out, code, err := Output(t.Context(), dial(), Shell("echo a; echo b >&2"))
	if err != nil || code != 0 || !strings.Contains(out, "a\n") || !strings.Contains(out, "b\n") {
		t.Errorf("%q, %d, %v", out, code, err)
	}
	for want, c := range map[string]Command{
		"no program no-such: put it there": {Args: []string{"no-such"}},
		"no program to run":                {},
		"more than the limit of":           {Args: []string{strings.Repeat("x", 2*maxGuestRequest)}},
	} {
		if _, err := Exec(t.Context(), dial(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// startProgram starts a program, and returns its process ID, which it prints.
func startProgram(ctx context.Context, t *testing.T, dial func() net.Conn, signals chan os.Signal) (pid int, ended chan error, code *int) {
	t.Helper()
	r, w := io.Pipe()
	ended, code = make(chan error, 1), new(int)
	c := Shell("echo $$; sleep 100 & wait; wait")
	c.Stdout, c.Signals = w, signals
	go func() {
		var err error
		*code, err = Exec(ctx, dial(), c)
		ended <- err
	}()
	b := make([]byte, 32)
	n := must.Get(r.Read(b))(t)
	pid = must.Get(strconv.Atoi(strings.TrimSpace(string(b[:n]))))(t)
	return pid, ended, code
}

func TestContextKillsProgram(t *testing.T) {
	t.Parallel() // it waits until the connection is closed
	cause := errors.New("cancelled by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	pid, ended, _ := startProgram(ctx, t, serve(t, &GuestServer{}), nil)
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	// Its child ends too: it is in the same process group.
	for end := time.Now().Add(30 * time.Second); syscall.Kill(-pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the program still runs")
		}
	}
}

func TestExecForwardsSignals(t *testing.T) {
	signals := make(chan os.Signal, 1)
	_, ended, code := startProgram(t.Context(), t, serve(t, &GuestServer{}), signals)
	signals <- syscall.SIGTERM
	if err := <-ended; err != nil || *code != 128+15 {
		t.Errorf("got %d, %v", *code, err)
	}
}

func TestPutIsAtomic(t *testing.T) {
	dial, dir := serve(t, &GuestServer{}), t.TempDir()
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // many frames
	path := filepath.Join(dir, "new", "file")
	for range 2 { // the second replaces the first
		must.Do(t, Put(t.Context(), dial(), File{path, 0o751, int64(len(text)), bytes.NewReader(text)}))
		got, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || !bytes.Equal(got, text) || info.Mode() != fs.FileMode(0o751) {
			t.Errorf("%d octets of %d, mode %v, %v", len(got), len(text), info.Mode(), err)
		}
	}
	if err := Put(t.Context(), dial(), File{Path: path + "-empty", Mode: 0o600}); err != nil {
		t.Error(err)
	}
	for want, put := range map[string]func() error{
		"want an absolute path":     func() error { return Put(t.Context(), dial(), File{"rel", 0o644, 1, strings.NewReader("x")}) },
		"ended after 3 of 10 bytes": func() error { return Put(t.Context(), dial(), File{path, 0o644, 10, strings.NewReader("abc")}) },
		"not a directory":           func() error { return Put(t.Context(), dial(), File{path + "/x", 0o644, 1, strings.NewReader("x")}) },
	} {
		if err := put(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// A failed Put leaves no temporary file, and the old content.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(filepath.Join(dir, "new", ".*"))
		if len(names) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("temporary files remain: %v", names)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the old file is %d octets, %v", len(got), err)
	}
}

func TestSetDevices(t *testing.T) {
	var requested []Device
	dial := serve(t, &GuestServer{Devices: func(all []Device) error { requested = all; return nil }})
	if err := SetDevices(t.Context(), dial(), []Device{SIWCRC}); err != nil || !slices.Equal(requested, []Device{SIWCRC}) {
		t.Errorf("got %v, %v", requested, err)
	}
	if err := SetDevices(t.Context(), dial(), []Device{SIW, SIWCRC}); err == nil || !strings.Contains(err.Error(), "two devices of kind siw") {
		t.Errorf("got %v", err)
	}
	if err := SetDevices(t.Context(), serve(t, &GuestServer{})(), nil); err == nil {
		t.Error("a server without devices changed them")
	}
}

func TestServerSurvivesInvalidRequests(t *testing.T) {
	dial := serve(t, &GuestServer{})
	hello := func(version uint64, text string) []byte {
		return control.Frame{Kind: control.Hello, Num: version, Body: []byte(text)}.Append(nil)
	}
	for want, input := range map[string][]byte{
		"EOF": {}, "unexpected frame": []byte("GET / HTTP/1.0\r\n\r\n"), "unexpected EOF": hello(guestVersion, "{")[:10], "invalid hello": hello(guestVersion, "{"),
		"unknown operation": hello(guestVersion, "{}"), "the limit is": hello(guestVersion, strings.Repeat(" ", maxGuestRequest+1)), "update the guest": hello(guestVersion+1, "{}"),
	} {
		conn := dial()
		go func() {
			_, _ = conn.Write(input) // fails if the server has closed the connection
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		_, err := control.New(conn, control.Config{Limits: control.ProgramClientLimits}).Read()
		var refused *control.CloseError
		if want != "the limit is" && (!errors.As(err, &refused) || !strings.Contains(refused.Reason, want)) {
			t.Errorf("%.40q: %v, want %q", input, err, want)
		}
		conn.Close()
	}
	if _, code, err := Output(t.Context(), dial(), Shell("exit 3")); code != 3 || err != nil {
		t.Errorf("afterwards: %d, %v", code, err)
	}
}

func TestOptionsRoundTrip(t *testing.T) {
	for _, o := range []BootOptions{
		{ID: 1, MTU: 1500, Devices: []Device{RXE}}, {ID: 9, MTU: 9000, Devices: []Device{RXE, SIWCRC}}, {ID: 2, MTU: 1280},
	} {
		got, err := parseCommandLine("quiet panic=-1 " + o.CommandLine() + " slub_debug=F\n")
		if err != nil || got.ID != o.ID || got.MTU != o.MTU || !slices.Equal(got.Devices, o.Devices) {
			t.Errorf("%+v became %+v, %v", o, got, err)
		}
	}
	for _, line := range []string{"quiet", "fabrictest.id=x", "fabrictest.id=1 fabrictest.mtu=1500 fabrictest.devices=mlx5", "fabrictest.id=10 fabrictest.mtu=1500"} {
		if _, err := parseCommandLine(line); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
}

func TestParseDevices(t *testing.T) {
	for list, want := range map[string][]Device{"rxe": {RXE}, "both": {RXE, SIW}, "siw-crc,rxe": {SIWCRC, RXE}, "none": nil} {
		if got, err := ParseDevices(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "mlx5", "rxe,rxe", "siw,siw-crc", "rxe,"} {
		if got, err := ParseDevices(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for got, want := range map[string]string{
		Wire4(1).String(): "10.77.0.11/24", Wire6(1).String(): "fd77::11/64", Wire4(9).String(): "10.77.0.19/24", Wire6(9).String(): "fd77::19/64",
		ControlAddr(2).String(): "10.78.2.2/24", ControlHostAddr(2).String(): "10.78.2.1/24", WireMAC(1): "52:54:00:77:00:11", ControlMAC(9): "52:54:00:78:00:19",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
