package launch_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/launch"
)

// forever is longer than any test.
const forever = 10 * time.Minute

// roles are the programs that the test binary runs as a rank.
var roles = map[string]func(){
	"exchange":        runExchange,
	"echo":            runEcho,
	"neighbour":       func() { runNeighbour(func(*launch.Conn) {}) },
	"lastneighbour":   func() { runNeighbour(waitForLastRank) },
	"commands":        runCommands,
	"blockeddump":     runBlockedDump,
	"panic":           func() { join(); panic("index out of range") },
	"exit":            func() { join(); os.Exit(3) },
	"noclose":         func() { join() },
	"failing":         func() { c := join(); _ = c.Close(errors.New("cannot find the fabric")); os.Exit(1) },
	"segv":            func() { join(); killByShell("SEGV") },
	"abort":           func() { join(); debug.SetTraceback("crash"); panic("crash") },
	"stopself":        func() { join(); _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP); time.Sleep(forever) },
	"spin":            runSpin,
	"sleep":           func() { join(); time.Sleep(forever) },
	"nojoin":          func() { fmt.Println("not joining"); time.Sleep(forever) },
	"noexit":          func() { c := join(); _ = c.Close(nil); time.Sleep(forever) },
	"memory":          runMemory,
	"flood":           runFlood,
	"children":        runWithChildren,
	"stubborn":        func() { signal.Ignore(syscall.SIGTERM, syscall.SIGHUP); time.Sleep(forever) },
	"unresponsive":    runUnresponsive,
	"violation":       runViolation,
	"sender":          runSender,
	"launcher":        runLauncher,
	"stoppedlauncher": runStoppedLauncher,
	"ping":            runPing,
	"marks":           runMarks,
	"remoteshell":     runRemoteShell,
	"proxy":           runProxy,
	"hostslauncher":   runHostsLauncher,
	"brief":           func() { c := join(); time.Sleep(2 * hangTimeout); check("close", c.Close(nil)) },
}

func join() *launch.Conn {
	c, err := launch.Join()
	if err != nil {
		fatal("join", err)
	}
	return c
}

func fatal(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}

func check(what string, err error) {
	if err != nil {
		fatal(what, err)
	}
}

// killByShell ends the process by a signal. The Go runtime would turn it into a panic.
func killByShell(sig string) {
	check("exec", syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -" + sig + " $$"}, os.Environ()))
}

// runExchange sends a message to every rank, including itself, and checks the received
// messages, between barriers.
func runExchange() {
	c := join()
	const rounds = 3
	for round := range rounds {
		for to := range c.Size() {
			check("send", c.Send(to, fmt.Appendf(nil, "%d to %d in %d", c.Rank(), to, round)))
		}
		for from := range c.Size() {
			msg, err := c.Recv(from, time.Minute)
			check("receive", err)
			if want := fmt.Sprintf("%d to %d in %d", from, c.Rank(), round); string(msg) != want {
				fatal("receive", fmt.Errorf("%q, want %q", msg, want))
			}
		}
		check("barrier", c.Barrier(time.Minute))
	}
	check("mark", c.Mark("exchanged"))
	check("sample", c.Sample(map[string]int{"rounds": rounds}))
	check("report", c.Report(fmt.Appendf(nil, "rank %d of %d on %s: %s", c.Rank(), c.Size(), c.Host(), c.Job())))
	check("close", c.Close(nil))
}

// runEcho returns the messages of rank 0 until that has ended.
func runEcho() {
	c := join()
	check("barrier", c.Barrier(-1))
	for {
		msg, err := c.Recv(0, -1)
		if errors.Is(err, launch.ErrEnded) {
			check("close", c.Close(nil))
			return
		}
		check("receive", err)
		check("send", c.Send(0, msg))
	}
}

// runPing makes the number of round trips to rank 1 in its argument, and reports the time in
// nanoseconds.
func runPing() {
	c := join()
	n, err := strconv.Atoi(os.Args[1])
	check("argument", err)
	check("barrier", c.Barrier(-1))
	began := time.Now()
	for range n {
		check("send", c.Send(1, make([]byte, 64)))
		_, err := c.Recv(1, -1)
		check("receive", err)
	}
	check("report", c.Report([]byte(strconv.FormatInt(time.Since(began).Nanoseconds(), 10))))
	check("close", c.Close(nil))
}

// runNeighbour: rank 0 sends three messages to each other rank and waits to be killed. The other
// ranks pass a barrier without it, and still receive the messages. They call last before they end.
func runNeighbour(last func(*launch.Conn)) {
	c := join()
	if c.Rank() == 0 {
		for i := range 3 * (c.Size() - 1) {
			check("send", c.Send(1+i/3, []byte{byte(i % 3)}))
		}
		check("mark", c.Mark("sent"))
		time.Sleep(forever)
	}
	if _, err := c.Recv(2, 0); !errors.Is(err, launch.ErrTimeout) {
		fatal("receive at once", err)
	}
	if _, err := c.Recv(2, time.Millisecond); !errors.Is(err, launch.ErrTimeout) {
		fatal("receive in time", err)
	}
	check("barrier", c.Barrier(-1)) // returns when rank 0 has ended
	for i := range 3 {
		msg, err := c.Recv(0, -1)
		check("receive", err)
		if !bytes.Equal(msg, []byte{byte(i)}) {
			fatal("receive", fmt.Errorf("%v, want %d", msg, i))
		}
	}
	if _, err := c.Recv(0, -1); !errors.Is(err, launch.ErrEnded) {
		fatal("receive from an ended rank", err)
	}
	if err := c.Send(0, nil); !errors.Is(err, launch.ErrEnded) {
		fatal("send to an ended rank", err)
	}
	last(c)
	check("close", c.Close(nil))
}

// waitForLastRank waits until the rank with the highest number has ended.
func waitForLastRank(c *launch.Conn) {
	if _, err := c.Recv(c.Size()-1, -1); !errors.Is(err, launch.ErrEnded) {
		fatal("receive from the last rank", err)
	}
}

// runMarks sends more marks than the event queue holds.
func runMarks() {
	c := join()
	for i := range 2000 {
		check("mark", c.Mark(strconv.Itoa(i)))
	}
	check("close", c.Close(nil))
}

func runCommands() {
	c := join()
	done := make(chan struct{})
	c.OnCommand(func(command string) error {
		switch command {
		case "finish":
			close(done)
			return nil
		case "break":
			return errors.New("nothing to break")
		default:
			return c.Mark(command)
		}
	})
	c.OnDump(func() string { return "rank is idle" })
	check("mark", c.Mark("ready"))
	<-done
	check("close", c.Close(nil))
}

// runBlockedDump has an OnDump function that never returns.
func runBlockedDump() {
	c := join()
	c.OnDump(func() string { select {} })
	check("mark", c.Mark("ready"))
	_, err := c.Recv(0, -1)
	fatal("receive", err)
}

// runSpin computes forever.
func runSpin() {
	c := join()
	c.OnDump(func() string { return "computes" })
	check("mark", c.Mark("ready"))
	for n := 0; ; n++ {
		_ = n
	}
}

// runMemory touches the number of MiB in its argument.
func runMemory() {
	c := join()
	mib, err := strconv.Atoi(os.Args[1])
	check("argument", err)
	b := make([]byte, mib<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	check("report", c.Report(b[:min(1, len(b))]))
	check("close", c.Close(nil))
}

// runFlood writes the number of MiB in its argument to stdout, in lines, and to stderr, without
// newlines, and then a last text to each.
func runFlood() {
	c := join()
	mib, err := strconv.Atoi(os.Args[1])
	check("argument", err)
	lines := bytes.Repeat([]byte(strings.Repeat("x", 63)+"\n"), 16<<10)
	endless := bytes.Repeat([]byte("y"), 1<<20)
	for range mib {
		_, _ = os.Stdout.Write(lines)
		_, _ = os.Stderr.Write(endless)
	}
	fmt.Print("last of stdout")
	fmt.Fprint(os.Stderr, "last of stderr")
	check("close", c.Close(nil))
}

// runWithChildren starts two children that ignore SIGTERM and reports their PIDs. One is
// in its process group but has another environment; the other is in a new session but
// inherits the environment.
func runWithChildren() {
	c := join()
	pids := []string{strconv.Itoa(os.Getpid())}
	for _, setsid := range []bool{false, true} {
		child := exec.Command(os.Args[0])
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		if setsid {
			child.Env = os.Environ()
		}
		child.Env = append(child.Env, roleEnv+"=stubborn")
		child.Stdout = os.Stdout // holds the pipe open
		check("start", child.Start())
		pids = append(pids, strconv.Itoa(child.Process.Pid))
	}
	check("mark", c.Mark("children "+strings.Join(pids, " ")))
	fmt.Println("children", strings.Join(pids, " "))
	if len(os.Args) > 1 && os.Args[1] == "leave" {
		check("close", c.Close(nil))
		return
	}
	signal.Ignore(syscall.SIGTERM)
	time.Sleep(forever)
}
