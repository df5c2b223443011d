package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// Up starts a lab and returns when its hosts stand.
func Up(ctx context.Context, cfg Config) error {
	if err := CheckName(cfg.Name); err != nil {
		return err
	}
	text, err := cfg.Scenario.Marshal()
	if err != nil {
		return err
	}
	trace := tracePath(cfg.Name)
	what, err := json.Marshal(job{Config: cfg, Text: string(text), Trace: trace})
	if err != nil {
		return err
	}
	l, err := claim(ctx, cfg.Name)
	if err != nil {
		return err
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", ServeCommand)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(what)), []*os.File{socket, readyEnd}
	if f := openTrace(trace); f != nil {
		defer f.Close()
		cmd.Stderr = f
	}
	err = startDetached(cmd)
	readyEnd.Close()
	if err != nil {
		closeTrace(trace)
		return err
	}
	return awaitReady(ctx, cmd, ready, trace)
}

// awaitReady waits until a lab says that it is up, or what keeps it from it.
func awaitReady(ctx context.Context, cmd *exec.Cmd, ready *os.File, trace string) error {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(ready).ReadString('\n')
	if line = strings.TrimSpace(line); line == "up" && stop() {
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its words say more
	words := lastWords(trace)
	closeTrace(trace)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case line != "":
		os.Remove(trace) // it holds the same
		return errors.New(line)
	case words != "":
		return fmt.Errorf("the lab's process ended at once: %s (all of it in %s)", words, trace)
	}
	return fmt.Errorf("the lab's process ended at once: %w", err)
}

// claim takes a name. A lab that has just died takes no calls any more, and may hold
// its name for a moment longer, until the kernel has cleared away the last of it.
func claim(ctx context.Context, name string) (*net.UnixListener, error) {
	const dying, again = 10 * time.Second, 5 * time.Millisecond
	for begun := time.Now(); ; time.Sleep(again) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: prefix() + name, Net: "unix"})
		if !errors.Is(err, unix.EADDRINUSE) {
			return l, err
		}
		conn, _, err := dial(ctx, name)
		if err == nil {
			conn.Close()
		}
		var foreign *foreignError
		var gone *NotUpError
		switch {
		case errors.As(err, &foreign):
			return nil, err
		case !errors.As(err, &gone) || time.Since(begun) > dying:
			return nil, ErrUp
		}
	}
}

// startDetached starts cmd in namespaces of its own, to live on without us.
func startDetached(cmd *exec.Cmd) error {
	if err := netns.Available(); err != nil {
		return err
	}
	if err := netns.Unshare(cmd); err != nil {
		return err
	}
	cmd.SysProcAttr.Pdeathsig = 0
	cmd.SysProcAttr.Setsid = true
	return cmd.Start()
}

// List names the labs of this user that are up. Sockets of others that look the
// same are left out.
func List(ctx context.Context) (names []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	seen := map[string]bool{}
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[len(fields)-1], prefix())
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		conn, _, err := dial(ctx, name)
		var silent *SilentError
		switch {
		case err == nil:
			conn.Close()
		case !errors.As(err, &silent):
			continue // somebody else's, or it went down meanwhile
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, lines.Err()
}

// Ask returns what a lab is like.
func Ask(ctx context.Context, name string) (*Info, error) {
	a, c, err := one(ctx, name, promptly, &request{Verb: askInfo})
	if err != nil {
		return nil, err
	}
	if a.Info == nil {
		return nil, fmt.Errorf("lab %s did not say what it is like: is it of another version?", name)
	}
	a.Info.PID = c.pid // in its PID namespace it is called something else
	return a.Info, nil
}

// downWait is how long a lab has to be gone once it was told to.
const downWait = 10 * time.Second

// Down takes a lab down and returns when it is gone.
func Down(ctx context.Context, name string) error {
	c, err := ask(ctx, name, promptly, &request{Verb: askDown})
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.answer(); err != nil {
		return err
	}
	// The lab closes the connection by ending.
	deadline := time.Now().Add(downWait)
	_ = c.conn.SetDeadline(deadline)
	var gone *NotUpError
	_, err = c.answer()
	if !errors.As(err, &gone) {
		return err
	}
	for time.Now().Before(deadline) {
		conn, _, err := dial(ctx, name)
		if err != nil {
			if errors.As(err, &gone) {
				return nil
			}
			return err
		}
		conn.Close()
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("lab %s is still there after %v", name, downWait)
}

// SetLink cuts the cables that a pattern names, or joins them again.
func SetLink(ctx context.Context, name, ports string, up bool) error {
	link := "down"
	if up {
		link = "up"
	}
	_, _, err := one(ctx, name, patiently, &request{Verb: askSet, Host: ports, Link: link})
	return err
}

// Impair replaces what the packets of the ports that a pattern names meet, by the
// impair section of a scenario, whose fabric must be the lab's own.
func Impair(ctx context.Context, name, ports, scenario string) error {
	_, _, err := one(ctx, name, patiently, &request{Verb: askSet, Host: ports, Impair: scenario})
	return err
}
