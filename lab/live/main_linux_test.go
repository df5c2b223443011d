package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// Roles of the test binary besides a lab.
const (
	roleVariable = "FABRICTEST_LIVE_ROLE"
	roleExec     = "exec"                 // a client: LAB HOST PROGRAM...
	roleUp       = "up"                   // a client that brings a lab up: LAB HOSTS
	roleDown     = "down"                 // a client that takes any lab down: SOCKET
	roleSend     = "send"                 // a program in a host that sends a datagram: ADDRESS
	roleReceive  = "receive"              // a program in a host that receives a datagram: ADDRESS
	roleListen   = "listen"               // a listener that counts received bytes: SOCKET
	exitVariable = "FABRICTEST_LIVE_EXIT" // makes the process of RunProgram exit
	// Environment variables with shorter timeouts for a test process.
	requestTimeoutVar = "FABRICTEST_LIVE_REQUEST_TIMEOUT"
	replyTimeoutVar   = "FABRICTEST_LIVE_REPLY_TIMEOUT"
)

func TestMain(m *testing.M) {
	for name, timeout := range map[string]*time.Duration{requestTimeoutVar: &labDaemons.RequestTimeout, replyTimeoutVar: &labDaemons.ReplyTimeout} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *timeout, err = time.ParseDuration(text); err != nil {
				exitWith(0, err)
			}
		}
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ServeCommand:
			exitWith(0, ServeMain())
		case ProgramCommand:
			if os.Getenv(exitVariable) != "" {
				os.Exit(7)
			}
			exitWith(ProgramMain())
		}
	}
	switch os.Getenv(roleVariable) {
	case roleExec:
		exitWith(Exec(context.Background(), os.Args[1], os.Args[2], os.Args[3:]))
	case roleUp:
		exitWith(0, bringUp(os.Args[1], os.Args[2]))
	case roleDown:
		exitWith(0, requestDown(os.Args[1]))
	case roleSend:
		exitWith(0, send(os.Args[1]))
	case roleReceive:
		exitWith(0, receive(os.Args[1]))
	case roleListen:
		exitWith(0, listenAsLab(os.Args[1]))
	}
	testutil.SetParallel(8) // tests mostly wait for labs and programs in other processes
	exitWith(withOwnCache(m.Run))
}

// withOwnCache runs the tests with a temporary cache directory.
func withOwnCache(run func() int) (code int, err error) {
	cache, err := os.MkdirTemp("", "fabrictest-live-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(cache)
	if err := os.Setenv("XDG_CACHE_HOME", cache); err != nil {
		return 0, err
	}
	return run(), nil
}

func exitWith(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 99
	}
	os.Exit(code)
}

// role returns a command that runs this binary in another role.
func role(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+name)
	return cmd
}

var labs atomic.Int64

// up brings a lab up until the end of the test. env is for the lab process alone.
func up(t *testing.T, hosts int, env ...string) (name string) {
	t.Helper()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	name = fmt.Sprintf("live-%d-%d", os.Getpid(), labs.Add(1))
	if len(env) == 0 {
		must.Do(t, Up(t.Context(), Config{Name: name, Scenario: star(hosts), Direct: true}))
	} else {
		cmd := role(t, roleUp, name, strconv.Itoa(hosts))
		cmd.Env = append(cmd.Env, env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		var gone *daemon.NotUpError
		if err := Down(context.Background(), name); err != nil && !errors.As(err, &gone) {
			t.Error(err)
		}
	})
	return name
}

// bringUp calls Up in a process with another environment.
func bringUp(name, hosts string) error {
	n, err := strconv.Atoi(hosts)
	if err != nil {
		return err
	}
	os.Unsetenv(roleVariable) // not for the lab
	return Up(context.Background(), Config{Name: name, Scenario: star(n), Direct: true})
}

func star(hosts int) *scenarios.Scenario {
	return &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "lab", Title: "A lab", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: scenarios.Fabric{Kind: scenarios.Star, Hosts: hosts},
	}
}

// mustAnswer returns the state of a lab, which must respond.
func mustAnswer(t *testing.T, name string) *Info {
	t.Helper()
	info := must.Get(Query(t.Context(), name))(t)
	return info
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// within fails the test if f takes longer than limit.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		t.Errorf("%s took %v, may take %v", what, took, limit)
	}
}

// hello returns the frame of a request.
func hello(text string) []byte {
	return control.Frame{Kind: control.Hello, Num: labDaemons.Version, Body: []byte(text)}.Append(nil)
}

// requestDown asks the lab of another user to go down.
func requestDown(socket string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	// The lab may have disconnected without a reply.
	_ = daemon.SendFiles(conn)
	_, _ = conn.Write(hello(fmt.Sprintf(`{"op":%q}`, opDown)))
	answer, _ := io.ReadAll(conn)
	fmt.Printf("answer: %q\n", answer)
	return nil
}

func send(addr string) error {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("captured datagram"))
	return err
}

// receive waits for a datagram.
func receive(addr string) error {
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Println("listening")
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	_, _, err = conn.ReadFrom(make([]byte, 1500))
	return err
}

// listenAsLab listens at the name of a lab, and prints how many bytes it receives.
func listenAsLab(socket string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		received, _ := io.ReadAll(conn)
		fmt.Printf("received %d bytes\n", len(received))
		conn.Close()
	}
}

// asOtherUser runs a role as another user; only root can.
func asOtherUser(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can run programs as two users")
	}
	cmd := role(t, name, args...)
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// runsWith reports whether a process has a text in its environment.
func runsWith(text string) bool {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
		if err == nil && strings.Contains(string(env), text) {
			return true
		}
	}
	return false
}
