package image

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// MissingError is what a machine lacks, and the command that gets it.
type MissingError struct {
	What []string // programs, and what else is not there
	For  string
	Cure string
}

func (e *MissingError) Error() string {
	verb := "is"
	if len(e.What) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s missing, for %s; to have it: %s", strings.Join(e.What, ", "), verb, e.For, e.Cure)
}

// packageOf is the Debian package of a program that we use.
var packageOf = map[string]string{
	"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg", "xz": "xz-utils", "make": "make", "strip": "binutils",
	"qemu-system-x86_64": "qemu-system-x86",
}

// Need returns an error that names all of the programs that are not installed, and
// the command that installs them on Debian and its like.
func Need(purpose string, programs ...string) error {
	e := &MissingError{For: purpose, Cure: "apt-get install --no-install-recommends"}
	var packages []string
	for _, name := range programs {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		e.What = append(e.What, name)
		pkg := packageOf[name]
		if pkg == "" {
			pkg = name // as compilers are
		}
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	if e.What == nil {
		return nil
	}
	e.Cure += " " + strings.Join(packages, " ") + " (Debian, Ubuntu; as root)"
	return e
}
