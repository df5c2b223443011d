package nics

import (
	"fmt"
	"strings"
)

// Profile has the known defects and missing capabilities of a real device. An
// emulated NIC with a profile behaves on the wire as that device.
type Profile struct {
	Name, Title string
	// Provider is the provider whose NICs can have the profile. The registry sets it.
	Provider     string
	Defects      []string
	Restrictions Restrictions
}

// Profiles returns the profiles of all providers.
func Profiles() (profiles []Profile) {
	for _, p := range all() {
		profiles = append(profiles, p.Profiles...)
	}
	return profiles
}

// ProfileNames returns the names of all profiles.
func ProfileNames() (names []string) {
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// FindProfile returns the profile with a name.
func FindProfile(name string) (*Profile, error) {
	for _, p := range Profiles() {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("no profile %q: there are %s", name, strings.Join(ProfileNames(), ", "))
}
