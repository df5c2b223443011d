package nslab

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/lab/ethernet"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// capture is a file with the packets of a rank's NICs.
type capture struct {
	file    *os.File
	packets *pcaplink.Capture
}

// newCapture creates the capture file of a rank, which is flushed on SIGTERM. It returns the zero
// value if the job asks for no capture.
func newCapture(job *rankJob) (c capture, err error) {
	if job.Capture == "" {
		return c, nil
	}
	f, err := os.Create(job.Capture)
	if err != nil {
		return c, fmt.Errorf("capture: %w", err)
	}
	c = capture{f, pcaplink.NewCapture(f, pcaplink.Options{Epoch: time.Now(), Comment: job.Comment, FindIPID: softroce.FindIPID})}
	go c.flushOnSIGTERM()
	return c, nil
}

// flushOnSIGTERM flushes the file on SIGTERM, because the last packets of a run
// that hangs matter most. Then the signal ends the process.
func (c capture) flushOnSIGTERM() {
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, syscall.SIGTERM)
	<-sigterm
	_ = c.packets.Flush() // the process ends anyway
	signal.Reset(syscall.SIGTERM)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// captureSuffix is the suffix of uncompressed captures.
const captureSuffix = ".pcapng"

// finishCaptures compresses the captures in a folder if keep is set, except empty files, which
// ranks leave that were killed early; else it removes them. The writers must have ended.
func finishCaptures(dir string, keep bool) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+captureSuffix))
	errs := []error{err}
	for _, name := range names {
		if !keep {
			errs = append(errs, os.Remove(name))
		} else if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			_, _, err := pcaplink.Compress(name, nil) // without comments on packets
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// MaxFabricCapture is the default limit of the capture of a fabric.
const MaxFabricCapture = 256 << 20

// CaptureOptions are options of the capture that a Testbed writes. It has the
// frames on impaired cables in user space, as they were sent; a packet comment
// tells if a frame was dropped or changed.
type CaptureOptions struct {
	// File is the file name; empty for no capture. Without impaired cables no file is written.
	File string
	// MaxBytes limits the file; 0 means MaxFabricCapture.
	MaxBytes int64
	// Comment is written to the file, for example the command that repeats the run.
	Comment string
	// OnTruncated, if not nil, is called once, by the goroutine of a switch, when
	// the file reaches its limit.
	OnTruncated func()
}

// fabricCapturer writes the capture of the user-space switches.
type fabricCapturer struct {
	opts  CaptureOptions
	epoch time.Time // time 0 of the switches
	file  *os.File  // nil until the first tap
	to    *ethernet.Capture
}

// tap returns a handler that captures frames under an interface name before it passes them to
// next. It returns next itself if no capture is wanted. The first call creates the file.
func (f *fabricCapturer) tap(name string, next uswitch.FrameHandler) (uswitch.FrameHandler, error) {
	if f.opts.File == "" {
		return next, nil
	}
	if f.file == nil {
		file, err := os.Create(f.opts.File)
		if err != nil {
			return nil, fmt.Errorf("capture: %w", err)
		}
		f.file = file
		f.to = ethernet.NewCapture(file, ethernet.CaptureOptions{
			Epoch: f.epoch, Comment: f.opts.Comment,
			MaxBytes: cmp.Or(f.opts.MaxBytes, MaxFabricCapture), OnLimit: f.opts.OnTruncated,
		})
	}
	return f.to.Tap(name, next), nil
}

// closeCapture completes and closes a capture file, unless it is nil. After an error it removes the
// file, because a full disk needs the space for the report.
func closeCapture(file *os.File, writer io.Closer) error {
	if file == nil {
		return nil
	}
	err := errors.Join(writer.Close(), file.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}
