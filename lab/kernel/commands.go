package kernel

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// AllGuests is the word for all guests in ChangeLinks.
const AllGuests = "*"

// ParseGuest reads the number of a guest.
func ParseGuest(word string) (int, error) {
	id, err := strconv.Atoi(word)
	if err != nil || id < 1 || id > MaxGuests {
		return 0, cli.Errorf("%q is no guest: give its number, 1 for the first", word)
	}
	return id, nil
}

// ChangeLinks changes the link of one guest or of all guests in a lab. word is the number of the
// guest, or AllGuests; change has the word up or down, or the words of ParseImpairment.
func ChangeLinks(ctx context.Context, lab, word string, change []string) error {
	id := 0
	var err error
	if word != AllGuests {
		if id, err = ParseGuest(word); err != nil {
			return err
		}
	}
	isState := len(change) == 1 && (change[0] == "up" || change[0] == "down")
	var m Impairment
	if !isState {
		if m, err = ParseImpairment("guest "+word, change); err != nil {
			return err
		}
	}
	remote, err := Connect(lab)
	if err != nil {
		return err
	}
	ids := []int{id}
	if word == AllGuests {
		info, err := remote.Info(ctx)
		if err != nil {
			return err
		}
		ids = ids[:0]
		for _, g := range info.Guests {
			ids = append(ids, g.ID)
		}
	}
	for _, id := range ids {
		if isState {
			err = remote.SetLink(ctx, id, change[0] == "up")
		} else {
			err = remote.Impair(ctx, id, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Query returns the description of a lab.
func Query(ctx context.Context, lab string) (*Info, error) {
	remote, err := Connect(lab)
	if err != nil {
		return nil, err
	}
	return remote.Info(ctx)
}

// CopyFile copies a local file with its mode to the path target in a guest. If target is empty or
// ends with a slash, the file keeps its name, in /tmp or in that directory.
func CopyFile(ctx context.Context, lab string, id int, file, target string) error {
	f, info, err := openFile(file)
	if err != nil {
		return cli.Errorf("%w", err)
	}
	defer f.Close()
	if target == "" {
		target = "/tmp/"
	}
	if strings.HasSuffix(target, "/") {
		target += path.Base(file)
	}
	remote, err := Connect(lab)
	if err != nil {
		return err
	}
	return remote.Put(ctx, id, File{Path: target, Mode: info.Mode(), Size: info.Size(), Content: f})
}

// Capabilities reports whether this machine can boot guests, and whether this program can be the
// agent on the host of a real device.
func Capabilities() []netns.Capability {
	dir, err := DefaultImageDir()
	if err == nil {
		err = Check()
	}
	return []netns.Capability{kernelGuests(ImageCache{Dir: dir}, err), agentLibrary(ibv.Linked)}
}

// kernelGuests returns the capability to boot guests: which kernels have an image, and how to
// build the others. bootErr is not nil if this machine cannot boot guests.
func kernelGuests(cache ImageCache, bootErr error) netns.Capability {
	c := netns.Capability{
		Name: "kernel guests", State: netns.Yes,
		For: "Linux's own soft-RoCE and soft-iWARP as devices and as peers (lab kernel, certify)",
	}
	if bootErr != nil {
		c.State = netns.No
		c.Reason, c.Cure = reasonAndCure(bootErr)
		return c
	}
	var built, missing []string
	var buildErr error
	const siw = true // images with the module of soft-iWARP
	for _, series := range AllSeries() {
		if _, err := cache.Find(series, siw); err == nil {
			built = append(built, string(series))
			continue
		}
		missing = append(missing, string(series))
		buildErr = cache.Check(series, siw) // the same for all: programs that this machine lacks
	}
	switch {
	case len(missing) == 0:
		return c
	case buildErr != nil:
		c.State = netns.No
		c.Reason, c.Cure = reasonAndCure(buildErr)
	default:
		c.State = netns.Limited
		c.Reason = fmt.Sprintf("no image of Linux %s yet: the first that needs it makes it, which takes some minutes and a network", strings.Join(missing, ", "))
		c.Cure = "fabrictest lab kernel build --kernel " + missing[0]
	}
	if len(built) > 0 {
		c.State = netns.Limited
		c.Reason = fmt.Sprintf("Linux %s is there; %s", strings.Join(built, ", "), c.Reason)
	}
	return c
}

// reasonAndCure splits an error into its reason and the command that removes it, "" if unknown.
func reasonAndCure(err error) (reason, cure string) {
	var missing *MissingError
	var none *netns.UnavailableError
	switch {
	case errors.As(err, &missing):
		return fmt.Sprintf("missing: %s", strings.Join(missing.Missing, ", ")), missing.Install
	case errors.As(err, &none):
		return none.Reason, none.Cure
	}
	return err.Error(), ""
}

// agentLibrary returns the capability of this program to be an agent, which executes verbs on a
// real device for another host: it has to be linked with libibverbs.
func agentLibrary(linked bool) netns.Capability {
	c := netns.Capability{Name: "libibverbs", For: "this program as the agent on the host of a real device (agent)", State: netns.Yes}
	if !linked {
		c.State, c.Reason = netns.No, "this program was built without it"
		c.Cure = "Debian: apt install gcc libibverbs-dev librdmacm-dev, then go build -tags ibverbs ./cmd/fabrictest"
	}
	return c
}
