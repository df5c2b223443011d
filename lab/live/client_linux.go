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

// Up starts a lab and returns when its fabric is up.
func Up(ctx context.Context, cfg Config) error {
	if err := CheckName(cfg.Name); err != nil {
		return err
	}
	text, err := cfg.Scenario.Marshal()
	if err != nil {
		return err
	}
	crashLog := crashLogPath(cfg.Name)
	input, err := json.Marshal(serverJob{Config: cfg, Text: string(text), CrashLog: crashLog})
	if err != nil {
		return err
	}
	listener, err := listen(ctx, cfg.Name)
	if err != nil {
		return err
	}
	defer listener.Close()
	socket, err := listener.File()
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
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(input)), []*os.File{socket, readyEnd}
	if f := createCrashLog(crashLog); f != nil {
		defer f.Close()
		cmd.Stderr = f
	}
	err = startDetached(cmd)
	readyEnd.Close()
	if err != nil {
		removeEmptyCrashLog(crashLog)
		return err
	}
	return awaitReady(ctx, cmd, ready, crashLog)
}

// awaitReady waits until a lab is up, or returns why it failed.
func awaitReady(ctx context.Context, cmd *exec.Cmd, ready *os.File, crashLog string) error {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(ready).ReadString('\n')
	if line = strings.TrimSpace(line); line == "up" && stop() {
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its output has the reason
	crash := firstLine(crashLog)
	removeEmptyCrashLog(crashLog)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case line != "":
		os.Remove(crashLog) // it has the same text
		return errors.New(line)
	case crash != "":
		return fmt.Errorf("the lab's process ended at once: %s (see %s)", crash, crashLog)
	}
	return fmt.Errorf("the lab's process ended at once: %w", err)
}

// listen binds the socket of a lab. After a lab dies, the kernel may keep its name
// for a moment: listen retries while nothing accepts connections there.
func listen(ctx context.Context, name string) (*net.UnixListener, error) {
	const maxWait, retryInterval = 10 * time.Second, 5 * time.Millisecond
	for begun := time.Now(); ; time.Sleep(retryInterval) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPrefix() + name, Net: "unix"})
		if !errors.Is(err, unix.EADDRINUSE) {
			return listener, err
		}
		conn, _, err := dial(ctx, name)
		if err == nil {
			conn.Close()
		}
		var foreign *otherUserError
		var gone *NotUpError
		switch {
		case errors.As(err, &foreign):
			return nil, err
		case !errors.As(err, &gone) || time.Since(begun) > maxWait:
			return nil, ErrAlreadyUp
		}
	}
}

// startDetached starts cmd in new namespaces and a new session, to outlive this
// process.
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

// List returns the names of this user's labs. It ignores sockets that other users
// have bound under such names.
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
		name, ok := strings.CutPrefix(fields[len(fields)-1], socketPrefix())
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		conn, _, err := dial(ctx, name)
		var silent *NotRespondingError
		switch {
		case err == nil:
			conn.Close()
		case !errors.As(err, &silent):
			continue // another user's, or just taken down
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, lines.Err()
}

// Query returns the description of a lab.
func Query(ctx context.Context, name string) (*Info, error) {
	body, pid, err := roundTrip(ctx, name, replyTimeout, &request{Op: opInfo})
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("lab %s sent an invalid description: %w", name, err)
	}
	info.PID = pid // the lab only knows its PID in its own namespace
	return &info, nil
}

// downTimeout is how long a lab may take to end.
const downTimeout = 10 * time.Second

// Down takes a lab down and returns when it has ended.
func Down(ctx context.Context, name string) error {
	c, err := sendRequest(ctx, name, replyTimeout, &request{Op: opDown})
	if err != nil {
		return err
	}
	defer c.close()
	// The lab may have ended by now: its response is still in the socket.
	pidfd, openErr := unix.PidfdOpen(c.pid, 0)
	if openErr == nil {
		defer unix.Close(pidfd)
	}
	if _, err := c.readReply(); err != nil {
		return err
	}
	deadline := time.Now().Add(downTimeout)
	_ = c.conn.SetDeadline(deadline)
	var gone *NotUpError
	if _, err := c.readReply(); !errors.As(err, &gone) { // the connection closes while the process exits
		return err
	}
	if openErr != nil {
		if errors.Is(openErr, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("lab %s, process %d: pidfd_open: %w", name, c.pid, openErr)
	}
	return awaitExit(ctx, pidfd, deadline)
}

// awaitExit returns when a process and all of its threads have ended.
func awaitExit(ctx context.Context, pidfd int, deadline time.Time) error {
	const pollMillis = 10
	for time.Now().Before(deadline) && ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, pollMillis)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the lab's process is still there after %v", downTimeout)
}

// SetLink sets the links that match a pattern up or down.
func SetLink(ctx context.Context, name, ports string, up bool) error {
	link := "down"
	if up {
		link = "up"
	}
	_, _, err := roundTrip(ctx, name, changeTimeout, &request{Op: opSet, Host: ports, Link: link})
	return err
}

// Impair replaces the impairments of the ports that match a pattern by those of a
// scenario with the same fabric.
func Impair(ctx context.Context, name, ports, scenario string) error {
	_, _, err := roundTrip(ctx, name, changeTimeout, &request{Op: opSet, Host: ports, Impair: scenario})
	return err
}
