package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"fairlead.dev/pkg/conditions"
)

// imagePattern is the grammar of references of images: [host[:port]/]path[:tag][@digest].
var imagePattern = regexp.MustCompile(`^(?:([a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?)/)?` +
	`([a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)` +
	`(?::([a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?$`)

// imageRepository returns the repository of an image with its registry, as container runtimes complete it: traefik:v3 is of
// docker.io/library/traefik.
func imageRepository(image string) (string, error) {
	parts := imagePattern.FindStringSubmatch(image)
	if len(image) > maxImage || parts == nil {
		return "", fmt.Errorf("image %s is not a reference of an image", quoteInput(image))
	}
	host, path := parts[1], parts[2]
	if host != "" && !strings.ContainsAny(host, ".:") && host != "localhost" { // the first part of a path on Docker Hub
		path, host = host+"/"+path, ""
		if strings.ToLower(path) != path {
			return "", fmt.Errorf("image %s is not a reference of an image: its path has capital letters", quoteInput(image))
		}
	}
	if host != "" && host != "docker.io" && host != "index.docker.io" {
		return host + "/" + path, nil
	}
	if !strings.Contains(path, "/") {
		path = "library/" + path
	}
	return "docker.io/" + path, nil
}

// checkAllowedImage returns an error unless a repository of the policy has the image. The image runs with a ServiceAccount that reads
// Secrets, on the nodes of the pool, so users who may write a YurtIngress must not choose any image.
func (p *Policy) checkAllowedImage(image string) error {
	repo, err := imageRepository(image)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.AllowedImages, func(entry string) bool {
		if strings.HasSuffix(entry, "/") {
			return strings.HasPrefix(repo, entry)
		}
		return repo == entry
	}) {
		return nil
	}
	return fmt.Errorf("image %s is not allowed: add %s to --allowed-images of the operator, or remove the image", quoteInput(image), repo)
}

// legacyImages are the repositories of the images that the webhook of OpenYurt's operator writes into objects as defaults. No user chose
// them, and they cannot serve a current cluster.
var legacyImages = []string{"k8s.gcr.io/ingress-nginx/controller:v0.48.1", "registry.k8s.io/ingress-nginx/controller:v0.48.1"}

// quoteInput quotes a text of a user for a message, and truncates it.
func quoteInput(text string) string {
	return fmt.Sprintf("%q", conditions.TruncateMessage(text, maxQuoted))
}
