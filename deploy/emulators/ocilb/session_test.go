package ocilb_test

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

const lbCookie = "X-Oracle-BMC-LBS-Route"

// visitor is a client that keeps cookies.
type visitor struct {
	*http.Client
	w *world
}

func (w *world) visitor(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &visitor{Client: &http.Client{Transport: w.client.Transport, Jar: jar}, w: w}
}

// visit sends requests, and returns their answers, each of which must be the same, and the cookies that the last of them set.
func (v *visitor) visit(t *testing.T, path string, n int) (answer string, set []*http.Cookie) {
	t.Helper()
	answers := map[string]bool{}
	kept := v.w.client
	v.w.client = v.Client
	defer func() { v.w.client = kept }()
	for range n {
		status, body, cookies := v.w.ask(t, path)
		if status != http.StatusOK {
			body = http.StatusText(status)
		}
		answers[body], answer, set = true, body, cookies
	}
	assert.Len(t, answers, 1, "%v", answers)
	return answer, set
}

// ask sends a request to the listener, and returns the cookies of the response too.
func (w *world) ask(t *testing.T, path string) (status int, body string, set []*http.Cookie) {
	t.Helper()
	response, body := w.response(t, http.MethodGet, path, nil)
	return response.StatusCode, body, response.Cookies()
}

// sticky makes set chat keep sessions by a cookie of the load balancer.
func sticky(s ocilb.LBCookieSessionPersistenceConfiguration) func(lb *ocilb.LoadBalancer) {
	return func(lb *ocilb.LoadBalancer) { lb.BackendSets["chat"].LBCookieSessionPersistenceConfiguration = &s }
}

// withSessions returns a world with two backends in set chat, after their first health checks. "/login" sets the cookie of the application,
// "/logout" deletes it.
func withSessions(t *testing.T, configure func(lb *ocilb.LoadBalancer)) *world {
	t.Helper()
	w := newWorld(t, nil)
	w.edit(t, configure)
	w.backends = map[int]*ocilbtest.Server{1: w.application(t, 1), 2: w.application(t, 2)}
	w.set(t, "chat", backend(1), backend(2))
	time.Sleep(time.Minute)
	return w
}

// application starts the i-th backend. Its answers have its number.
func (w *world) application(t *testing.T, i int) *ocilbtest.Server {
	t.Helper()
	return w.network.Serve(t, backend(i).Name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			http.SetCookie(rw, &http.Cookie{Name: "session", Value: "user", Path: "/"})
		case "/logout":
			http.SetCookie(rw, &http.Cookie{Name: "session", Path: "/", MaxAge: -1})
		}
		fmt.Fprint(rw, i)
	}))
}

// other returns the other one of two backends.
func other(answer string) string { return map[string]string{"1": "2", "2": "1"}[answer] }

// number returns the number of a backend from its answer.
func number(answer string) int { return map[string]int{"1": 1, "2": 2}[answer] }

func TestSessionsByTheCookieOfTheLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := withSessions(t, sticky(ocilb.LBCookieSessionPersistenceConfiguration{}))
		assert.Equal(t, map[string]int{"1": 2, "2": 2}, w.answers(t, 4), "clients without cookies")
		one, two := w.visitor(t), w.visitor(t)
		first, set := one.visit(t, "/", 1)
		require.Len(t, set, 1)
		assert.Equal(t, lbCookie, set[0].Name)
		second, _ := two.visit(t, "/", 1)
		assert.NotEqual(t, first, second)
		again, set := one.visit(t, "/", 5)
		assert.Equal(t, first, again)
		assert.Empty(t, set, "the client has its cookie")
		again, _ = two.visit(t, "/", 5)
		assert.Equal(t, second, again)
	})
}

func TestAttributesOfTheCookie(t *testing.T) {
	t.Parallel()
	name, path, age, yes, domain := "route", "/v1", 60, true, "example.com"
	configuration := ocilb.LBCookieSessionPersistenceConfiguration{CookieName: &name, Path: &path, MaxAgeInSeconds: &age, IsHTTPOnly: &yes, IsSecure: &yes, Domain: &domain}
	synctest.Test(t, func(t *testing.T) {
		w := withSessions(t, sticky(configuration))
		_, _, set := w.ask(t, "/")
		require.Len(t, set, 1)
		set[0].Raw, set[0].Value = "", ""
		assert.Equal(t, &http.Cookie{Name: name, Path: path, MaxAge: age, HttpOnly: true, Secure: true, Domain: domain}, set[0])
	})
}

// A cookie of another configuration is no session.
func TestCookiesOfAnotherConfiguration(t *testing.T) {
	t.Parallel()
	yes, path := true, "/"
	synctest.Test(t, func(t *testing.T) {
		w := withSessions(t, sticky(ocilb.LBCookieSessionPersistenceConfiguration{DisableFallback: &yes}))
		v := w.visitor(t)
		v.visit(t, "/", 1)
		domain := "example.com"
		w.edit(t, sticky(ocilb.LBCookieSessionPersistenceConfiguration{DisableFallback: &yes, Path: &path, Domain: &domain}))
		_, set := v.visit(t, "/", 1)
		assert.Len(t, set, 1, "another session begins, even without fallback")
		for _, forged := range []string{"", "x", ".", "0000000000000000.0000000000000000"} {
			response, _ := w.response(t, http.MethodGet, "/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: lbCookie, Value: forged}) })
			assert.Equal(t, http.StatusOK, response.StatusCode, forged)
		}
	})
}

func TestSessionsOfADrainingBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := withSessions(t, sticky(ocilb.LBCookieSessionPersistenceConfiguration{}))
		v := w.visitor(t)
		mine, _ := v.visit(t, "/", 1)
		draining := backend(number(mine))
		draining.Drain = true
		w.set(t, "chat", draining, backend(number(other(mine))))
		again, set := v.visit(t, "/", 5)
		assert.Equal(t, mine, again)
		assert.Empty(t, set)
		assert.Equal(t, map[string]int{other(mine): 4}, w.answers(t, 4), "it begins no sessions")
	})
}

func TestSessionsOfABackendThatCannotServe(t *testing.T) {
	t.Parallel()
	yes := true
	tests := []struct {
		name  string
		leave func(t *testing.T, w *world, i int)
	}{
		{name: "gone", leave: func(t *testing.T, w *world, i int) { w.set(t, "chat", backend(3-i)) }},
		{name: "offline", leave: func(t *testing.T, w *world, i int) {
			offline := backend(i)
			offline.Offline = true
			w.set(t, "chat", offline, backend(3-i))
		}},
		{name: "unhealthy", leave: func(_ *testing.T, w *world, i int) {
			w.backends[i].Kill()
			time.Sleep(time.Minute)
		}},
	}
	for _, tt := range tests {
		for _, disabled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fallback disabled: %v", tt.name, disabled), func(t *testing.T) {
				t.Parallel()
				configuration := ocilb.LBCookieSessionPersistenceConfiguration{}
				if disabled {
					configuration.DisableFallback = &yes
				}
				synctest.Test(t, func(t *testing.T) {
					w := withSessions(t, sticky(configuration))
					v := w.visitor(t)
					mine, set := v.visit(t, "/", 1)
					before := set[0].Value
					tt.leave(t, w, number(mine))
					if disabled {
						answer, set := v.visit(t, "/", 3)
						assert.Equal(t, "Bad Gateway", answer)
						assert.Empty(t, set)
						assert.Equal(t, map[string]int{other(mine): 2}, w.answers(t, 2), "clients without a session")
						return
					}
					answer, set := v.visit(t, "/", 1)
					assert.Equal(t, other(mine), answer)
					require.Len(t, set, 1)
					assert.NotEqual(t, before, set[0].Value)
					answer, set = v.visit(t, "/", 3)
					assert.Equal(t, other(mine), answer)
					assert.Empty(t, set)
				})
			})
		}
	}
}

func TestSessionsByTheCookieOfTheApplication(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"session", "*"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configure := func(lb *ocilb.LoadBalancer) {
				lb.BackendSets["chat"].SessionPersistenceConfiguration = &ocilb.SessionPersistenceConfiguration{CookieName: name}
			}
			synctest.Test(t, func(t *testing.T) {
				w := withSessions(t, configure)
				v := w.visitor(t)
				_, set := v.visit(t, "/", 1)
				assert.Empty(t, set, "the application has begun no session")
				mine, set := v.visit(t, "/login", 1)
				require.Len(t, set, 2)
				assert.Equal(t, []string{"session", lbCookie}, []string{set[0].Name, set[1].Name})
				again, set := v.visit(t, "/", 5)
				assert.Equal(t, mine, again)
				assert.Empty(t, set)

				draining := backend(number(mine))
				draining.Drain = true
				w.set(t, "chat", draining, backend(number(other(mine))))
				again, _ = v.visit(t, "/", 3)
				assert.Equal(t, mine, again)
				w.set(t, "chat", backend(number(other(mine))))
				again, set = v.visit(t, "/", 1)
				assert.Equal(t, other(mine), again)
				require.Len(t, set, 1, "the session moves")

				_, set = v.visit(t, "/logout", 1)
				assert.Len(t, set, 1, "only the application's deletion")
				w.set(t, "chat", backend(1), backend(2))
				time.Sleep(time.Minute)
				seen := map[string]bool{}
				for range 4 {
					answer, _ := v.visit(t, "/", 1)
					seen[answer] = true
				}
				assert.Len(t, seen, 2, "the session has ended")
			})
		})
	}
}

// The session is that of the value of the application's cookie.
func TestAnotherValueOfTheApplicationsCookie(t *testing.T) {
	t.Parallel()
	yes := true
	configure := func(lb *ocilb.LoadBalancer) {
		lb.BackendSets["chat"].SessionPersistenceConfiguration = &ocilb.SessionPersistenceConfiguration{CookieName: "session", DisableFallback: &yes}
	}
	synctest.Test(t, func(t *testing.T) {
		w := withSessions(t, configure)
		_, _, set := w.ask(t, "/login")
		require.Len(t, set, 2)
		for value, sessions := range map[string]int{"user": 1, "stranger": 2} {
			seen := map[string]bool{}
			for range 4 {
				response, body := w.response(t, http.MethodGet, "/", func(r *http.Request) {
					r.AddCookie(&http.Cookie{Name: "session", Value: value})
					r.AddCookie(&http.Cookie{Name: lbCookie, Value: set[1].Value})
				})
				require.Equal(t, http.StatusOK, response.StatusCode)
				seen[body] = true
			}
			assert.Len(t, seen, sessions, value)
		}
	})
}
