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

	"github.com/fabrictest/fabrictest/launch/rank"
)

// forever is longer than any test; a rank that lives so long has been forgotten.
const forever = 10 * time.Minute

// roles are the kinds of rank that the test binary can be.
var roles = map[string]func(){
	"exchange":  playExchange,
	"echo":      playEcho,
	"neighbour": playNeighbour,
	"order":     playOrder,
	"locked":    playLocked,
	"panic":     func() { join(); panic("the roof is on fire") },
	"exit":      func() { join(); os.Exit(3) },
	"silent0":   func() { join() },
	"failing":   func() { c := join(); _ = c.Close(errors.New("cannot find the fabric")); os.Exit(1) },
	"segv":      func() { join(); die("SEGV") },
	"abort":     func() { join(); debug.SetTraceback("crash"); panic("crash") },
	"stopself":  func() { join(); _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP); time.Sleep(forever) },
	"spin":      playSpin,
	"sleep":     func() { join(); time.Sleep(forever) },
	"lurk":      func() { fmt.Println("not joining"); time.Sleep(forever) },
	"linger":    func() { c := join(); _ = c.Close(nil); time.Sleep(forever) },
	"memory":    playMemory,
	"flood":     playFlood,
	"family":    playFamily,
	"stubborn":  func() { signal.Ignore(syscall.SIGTERM, syscall.SIGHUP); time.Sleep(forever) },
	"deaf":      playDeaf,
	"rude":      playRude,
	"talk":      playTalk,
	"parent":    playParent,
	"nap":       playNap,
	"ping":      playPing,
	"chatter":   playChatter,
	"brief":     func() { c := join(); time.Sleep(3 * patience); check("close", c.Close(nil)) },
}

func join() *rank.Conn {
	c, err := rank.Join()
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

// die ends the process by a signal, which the Go runtime would make a panic.
func die(sig string) {
	check("exec", syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -" + sig + " $$"}, os.Environ()))
}

// playExchange sends a message to everyone, itself included, and checks all that
// comes, between barriers.
func playExchange() {
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

// playEcho sends back what rank 0 sends, until that is gone.
func playEcho() {
	c := join()
	check("barrier", c.Barrier(-1))
	for {
		msg, err := c.Recv(0, -1)
		if errors.Is(err, rank.ErrRankEnded) {
			check("close", c.Close(nil))
			return
		}
		check("receive", err)
		check("send", c.Send(0, msg))
	}
}

// playPing sends to rank 1 and waits for the echo as often as its argument says,
// and reports the time in nanoseconds.
func playPing() {
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

// playNeighbour sends three messages to the next rank and waits for its own end;
// the next receives them, finds the sender gone, and passes a barrier without it.
func playNeighbour() {
	c := join()
	if c.Rank() == 0 {
		for i := range 3 {
			check("send", c.Send(1, []byte{byte(i)}))
		}
		check("mark", c.Mark("sent"))
		time.Sleep(forever)
	}
	if _, err := c.Recv(2, 0); !errors.Is(err, rank.ErrTimeout) {
		fatal("receive at once", err)
	}
	if _, err := c.Recv(2, time.Millisecond); !errors.Is(err, rank.ErrTimeout) {
		fatal("receive in time", err)
	}
	check("barrier", c.Barrier(-1)) // returns when rank 0 is no more
	if c.Rank() == 1 {
		for i := range 3 {
			msg, err := c.Recv(0, -1)
			check("receive", err)
			if !bytes.Equal(msg, []byte{byte(i)}) {
				fatal("receive", fmt.Errorf("%v, want %d", msg, i))
			}
		}
	}
	if _, err := c.Recv(0, -1); !errors.Is(err, rank.ErrRankEnded) {
		fatal("receive from the dead", err)
	}
	if err := c.Send(0, nil); !errors.Is(err, rank.ErrRankEnded) {
		fatal("send to the dead", err)
	}
	check("close", c.Close(nil))
}

// playChatter marks more than anybody wants to know.
func playChatter() {
	c := join()
	for i := range 2000 {
		check("mark", c.Mark(strconv.Itoa(i)))
	}
	check("close", c.Close(nil))
}

func playOrder() {
	c := join()
	done := make(chan struct{})
	c.OnCommand(func(order string) error {
		switch order {
		case "finish":
			close(done)
			return nil
		case "break":
			return errors.New("nothing to break")
		default:
			return c.Mark(order)
		}
	})
	c.OnDump(func() string { return "counts sheep" })
	check("mark", c.Mark("ready"))
	<-done
	check("close", c.Close(nil))
}

// playLocked cannot say what it is at.
func playLocked() {
	c := join()
	c.OnDump(func() string { select {} })
	check("mark", c.Mark("ready"))
	_, err := c.Recv(0, -1)
	fatal("receive", err)
}

// playSpin computes without end; its heart-beats go on.
func playSpin() {
	c := join()
	c.OnDump(func() string { return "computes" })
	check("mark", c.Mark("ready"))
	for n := 0; ; n++ {
		_ = n
	}
}

// playMemory makes as much memory resident as its argument says, in MiB.
func playMemory() {
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

// playFlood writes as many MiB as its argument says to standard output, in
// lines, and to standard error without one, and then a last word to each.
func playFlood() {
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

// playFamily has two children that will not end on request, and tells who they
// are: one is in its process group and has an environment of its own, the other
// is in a session of its own and has its parent's environment.
func playFamily() {
	c := join()
	pids := []string{strconv.Itoa(os.Getpid())}
	for _, own := range []bool{false, true} {
		child := exec.Command(os.Args[0])
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: own}
		if own {
			child.Env = os.Environ()
		}
		child.Env = append(child.Env, roleEnv+"=stubborn")
		child.Stdout = os.Stdout // holds the pipe open
		check("start", child.Start())
		pids = append(pids, strconv.Itoa(child.Process.Pid))
	}
	check("mark", c.Mark("family "+strings.Join(pids, " ")))
	fmt.Println("family", strings.Join(pids, " "))
	if len(os.Args) > 1 && os.Args[1] == "leave" {
		check("close", c.Close(nil))
		return
	}
	signal.Ignore(syscall.SIGTERM)
	time.Sleep(forever)
}
