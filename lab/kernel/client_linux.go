package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// socketPrefix returns the prefix of the abstract socket names of this user's
// kernel labs. The at sign stands for a zero byte.
func socketPrefix() string { return fmt.Sprintf("@fabrictest-kernel/%d/", os.Geteuid()) }

// Start starts a lab in a detached process, and returns when its guests are ready.
func Start(ctx context.Context, name string, cfg Config) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return err
	}
	if err := cfg.absolute(); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPrefix() + name, Net: "unix"})
	if errors.Is(err, unix.EADDRINUSE) {
		return ErrAlreadyUp
	}
	if err != nil {
		return err
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	crashLog, err := prepareLabDir(name, &cfg)
	if err != nil {
		return err
	}
	if crashLog != nil {
		defer crashLog.Close()
	}
	input, err := json.Marshal(job{Name: name, Config: cfg})
	if err != nil {
		return err
	}
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", ServeCommand)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(input)), []*os.File{socket, readyEnd}
	if crashLog != nil {
		cmd.Stderr = crashLog
	}
	err = startDetached(cmd)
	readyEnd.Close()
	if err != nil {
		return err
	}
	return awaitReady(ctx, cmd, ready, crashLog)
}

// prepareLabDir removes old consoles from the directory of a lab, and creates its
// log; nil if the user has no cache directory.
func prepareLabDir(name string, cfg *Config) (crashLog *os.File, err error) {
	dir := labDir(name)
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "guest*.console"))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	if cfg.Consoles == "" {
		cfg.Consoles = dir
	}
	return os.OpenFile(filepath.Join(dir, "stderr"), os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
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

// awaitReady waits until a lab is up, or returns why it failed.
func awaitReady(ctx context.Context, cmd *exec.Cmd, ready, crashLog *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	var a response
	err := json.NewDecoder(ready).Decode(&a)
	if err == nil && a.err() == nil && stop() {
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its response has the reason
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return a.err()
	}
	if crashLog != nil {
		if text, _ := os.ReadFile(crashLog.Name()); len(text) > 0 {
			first, _, _ := strings.Cut(string(text), "\n")
			return fmt.Errorf("the lab's process ended at once: %s (see %s)", first, crashLog.Name())
		}
	}
	return fmt.Errorf("the lab's process ended at once: %w", err)
}

// List returns the names of this user's kernel labs.
func List() (names []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[len(fields)-1], socketPrefix())
		if !ok || slices.Contains(names, name) {
			continue
		}
		if conn, _, err := dial(name); err == nil {
			conn.Close()
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, lines.Err()
}

// dial connects to a lab of the same user. A client must not send its descriptors
// and environment to another user.
func dial(name string) (conn *net.UnixConn, pid int, err error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: socketPrefix() + name, Net: "unix"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, 0, &NotUpError{Name: name}
	}
	if err != nil {
		return nil, 0, err
	}
	cred, err := peerCred(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("the name %s is used by another user, %d: give another name with --lab", name, cred.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, int(cred.Pid), nil
}

// replyTimeout is how long a lab has to answer a simple request.
const replyTimeout = 10 * time.Second

// call is a request in progress.
type call struct {
	name string
	pid  int
	conn *net.UnixConn
	stop func() bool
	ctx  context.Context // of this call only
}

// sendRequest sends a request with descriptors. The lab must answer within wait; 0
// is no limit.
func sendRequest(ctx context.Context, name string, wait time.Duration, r request, files ...*os.File) (*call, error) {
	conn, pid, err := dial(name)
	if err != nil {
		return nil, err
	}
	if wait != 0 {
		_ = conn.SetDeadline(time.Now().Add(wait))
	}
	c := &call{ctx: ctx, name: name, pid: pid, conn: conn}
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err = sendFiles(conn, files...); err == nil {
		err = json.NewEncoder(conn).Encode(r)
	}
	if err != nil {
		c.close()
		return nil, c.wrapErr(err)
	}
	return c, nil
}

func (c *call) close() {
	c.stop()
	c.conn.Close()
}

// readResponse reads a response with its descriptors.
func (c *call) readResponse() (a response, files []*os.File, err error) {
	if files, err = receiveFiles(c.conn); err == nil {
		// Byte by byte: descriptors of the next response may follow.
		var line []byte
		if line, err = readLine(c.conn); err == nil {
			err = json.Unmarshal(line, &a)
		}
	}
	if err != nil {
		closeAll(files)
		return a, nil, c.wrapErr(err)
	}
	if err := a.err(); err != nil {
		closeAll(files)
		return a, nil, err
	}
	return a, files, nil
}

// wrapErr converts an error of the connection.
func (c *call) wrapErr(err error) error {
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("kernel lab %s does not answer: its process %d is stopped or gets no CPU time; 'kill -CONT %[2]d' continues it, 'kill -9 %[2]d' ends it", c.name, c.pid)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return &NotUpError{Name: c.name} // it is going down
	}
	return fmt.Errorf("kernel lab %s: %w", c.name, err)
}

// readLine reads up to the end of a line without buffering.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	var one [1]byte
	for {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return nil, err
		}
		if one[0] == '\n' {
			return line, nil
		}
		if len(line) > consoleLimit*8 {
			return nil, errors.New("the answer is too long")
		}
		line = append(line, one[0])
	}
}
