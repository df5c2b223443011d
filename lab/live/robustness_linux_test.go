package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/daemon"
)

// rawClient connects to a lab without the protocol.
func rawClient(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn := must.Get(net.DialUnix("unix", nil, &net.UnixAddr{Name: labDaemons.Socket(name), Net: "unix"}))(t)
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

func TestLabSurvivesHostileClients(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	some := func(n int) (files []*os.File) {
		for range n {
			files = append(files, null)
		}
		return files
	}
	before := openFiles(t, mustAnswer(t, name).PID)
	for _, c := range []struct {
		what  string
		files []*os.File
		text  string
		want  string // in the reply; empty if none is required
	}{
		{"no request", nil, "", ""},
		{"garbage", nil, "\x00\xff{{{", "invalid request"},
		{"half a request", nil, `{"op":"in`, "invalid request"},
		{"another type", nil, `{"op":5}`, "invalid request"},
		{"too long", nil, `{"op":"info","env":["` + strings.Repeat("x", 4<<20) + `"]}`, "the limit is"},
		{"nested without end", nil, strings.Repeat("[", 100_000), ""},
		{"an unknown operation", nil, `{"op":"frobnicate"}`, "unknown operation"},
		{"no program", some(3), `{"op":"exec","host":"host0"}`, "no program to run"},
		{"no path", some(3), `{"op":"exec","host":"host0","args":["ls"]}`, "no program to run"},
		{"no descriptors", nil, `{"op":"exec","host":"host0","path":"/bin/true","args":["true"]}`, "received 0 descriptors, want 3"},
		{"one descriptor", some(1), `{"op":"exec","host":"host0","path":"/bin/true","args":["true"]}`, "received 1 descriptors"},
		{"too many descriptors", some(100), `{"op":"exec","host":"host0","path":"/bin/true","args":["true"]}`, ""},
		{"unused descriptors", some(3), `{"op":"info"}`, `"name":`},
		{"no such host", some(3), `{"op":"exec","host":"../host0","path":"/bin/true","args":["true"]}`, "no host"},
		{"a switch", some(3), `{"op":"exec","host":"switch0","path":"/bin/true","args":["true"]}`, "no host"},
		{"no such folder", some(3), `{"op":"exec","host":"host0","path":"/bin/true","args":["true"],"dir":"/no/such"}`, "/no/such"},
		{"no such program", some(3), `{"op":"exec","host":"host0","path":"/no/such","args":["such"]}`, "/no/such"},
		{"an invalid link state", nil, `{"op":"set","host":"host0","link":"sideways"}`, "up or down"},
		{"no such port", nil, `{"op":"set","host":"host7","link":"down"}`, "host7"},
		{"an invalid scenario", nil, `{"op":"set","host":"host0","impair":"]["}`, "set.yaml"},
		{"another fabric", nil, `{"op":"set","host":"host0","impair":"version: 1\nname: x\ntitle: X\nfabric: {kind: star, hosts: 9}\nworkload: {kind: all-to-all}\n"}`, "impaired"},
	} {
		conn := rawClient(t, name)
		if c.text != "" {
			_ = daemon.SendFiles(conn, c.files...)
			_, _ = conn.Write(hello(c.text)) // the lab may disconnect before
		}
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(conn)
		if !strings.Contains(string(answer), c.want) {
			t.Errorf("%s: answer %q, want %q", c.what, answer, c.want)
		}
		mustAnswer(t, name)
	}
	// All descriptors of the clients are closed.
	pid := mustAnswer(t, name).PID
	await(t, "descriptors are closed", func() bool { return openFiles(t, pid) <= before })
	if info := mustAnswer(t, name); info.Programs != 0 {
		t.Errorf("%d programs run", info.Programs)
	}
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	entries := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	return len(entries)
}

// Slow clients do not delay others.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	const requestTimeout = 3 * time.Second
	name := up(t, 2, requestTimeoutVar+"="+requestTimeout.String())
	var slow []*net.UnixConn
	for i := range 20 {
		conn := rawClient(t, name)
		if i%2 == 0 {
			_ = daemon.SendFiles(conn)
			_, _ = conn.Write(hello(`{"op":"info"}`)[:20])
		}
		slow = append(slow, conn)
	}
	within(t, requestTimeout, "an answer", func() { mustAnswer(t, name) })
	within(t, 10*requestTimeout, "disconnecting", func() { // all at once
		for _, conn := range slow {
			must.Get(io.ReadAll(conn))(t)
		}
	})
}

func TestManyConcurrentClients(t *testing.T) {
	name := up(t, 3)
	const clients = 200
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	for i := range clients {
		wg.Go(func() {
			if i%4 > 0 {
				_, err := Query(t.Context(), name)
				errs <- err
				return
			}
			errs <- echo(t, name, i)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	await(t, "all programs have ended", func() bool { return mustAnswer(t, name).Programs == 0 })
}

// echo runs a program that prints a number, and checks its output.
func echo(t *testing.T, name string, i int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	c, err := labDaemons.Send(t.Context(), name, changeTimeout, &request{
		Op: opExec, Host: fmt.Sprint("host", i%3),
		Program: daemon.Program{Path: "/bin/sh", Args: []string{"sh", "-c", fmt.Sprintf("echo $FABRICTEST_HOST says %d", i)}},
	}, w, w, w)
	w.Close()
	if err != nil {
		return err
	}
	defer c.Close()
	code, err := c.AwaitExit(nil)
	output, rerr := io.ReadAll(r)
	if want := fmt.Sprintf("host%d says %d\n", i%3, i); string(output) != want || code != 0 {
		return fmt.Errorf("%q and exit code %d, want %q", output, code, want)
	}
	return errors.Join(err, rerr)
}

func TestOtherUsersAreRejected(t *testing.T) {
	t.Parallel()
	cmd := asOtherUser(t, roleDown)
	name := up(t, 2)
	cmd.Args = append(cmd.Args, labDaemons.Socket(name))
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "answer: \"\"\n" {
		t.Errorf("%v: %s", err, out)
	}
	mustAnswer(t, name)
}

// Any user may bind the name of a lab, and must receive neither descriptors nor the
// environment.
func TestClientsSendNothingToOtherUsers(t *testing.T) {
	name := fmt.Sprintf("squatted-%d", os.Getpid())
	cmd := asOtherUser(t, roleListen, labDaemons.Socket(name))
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "listening" {
		t.Fatalf("the listener printed %q", lines.Text())
	}
	ctx := t.Context()
	for what, do := range map[string]func() error{
		"query":  func() error { _, err := Query(ctx, name); return err },
		"down":   func() error { return Down(ctx, name) },
		"link":   func() error { return SetLink(ctx, name, "host0", false) },
		"impair": func() error { return Impair(ctx, name, "host0", "") },
		"exec":   func() error { _, err := Exec(ctx, name, "host0", []string{"true"}); return err },
		"up":     func() error { return Up(ctx, Config{Name: name, Scenario: star(2)}) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "used by another user, 65534") {
			t.Errorf("%s: %v", what, err)
		}
		if !lines.Scan() || lines.Text() != "received 0 bytes" {
			t.Errorf("%s: the listener %s", what, lines.Text())
		}
	}
	names, err := List(ctx)
	if err != nil || strings.Contains(strings.Join(names, " "), name) {
		t.Errorf("the list has %v, %v", names, err)
	}
}
